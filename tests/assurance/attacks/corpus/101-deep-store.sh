# Writes nothing but 3,000 directories inside each other, in its store.
#: honest no
python3 -c 'import os
os.chdir("/git/objects")
for level in range(3000): os.mkdir("d"); os.chdir("d")'
