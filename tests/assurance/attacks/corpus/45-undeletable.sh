# Creates directories and files without permissions, or with another owner.
mkdir -p u/a/b/c v; echo x > u/a/b/c/f; echo x > v/f
chown -R 0:0 v; chown -R 12345:12345 u/a/b; chattr +i v/f
chmod 000 u/a/b/c u/a/b u/a src a.txt; chmod 555 docs
chmod 000 "$GIT_DIRECTORY/refs" .
