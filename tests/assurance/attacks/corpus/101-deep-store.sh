# Creates 3,000 nested directories in its store.
#: honest no
python3 -c 'import os
os.chdir("/git/objects")
for level in range(3000): os.mkdir("d"); os.chdir("d")'
