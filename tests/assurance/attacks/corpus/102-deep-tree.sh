# Creates 3,000 nested directories in the work tree, deeper than a path may be long.
python3 -c 'import os
for level in range(3000): os.mkdir("d"); os.chdir("d")
open("f", "w").close()'
