# Creates setuid and setgid programs, and tries to set file capabilities.
cp /bin/sh shell && chown 0:0 shell; chmod 6755 shell
python3 -c 'import os, struct; os.setxattr("shell", "security.capability",
  struct.pack("<5I", 0x02000001, 0x80, 0, 0, 0))'
chmod 6755 .
commit
