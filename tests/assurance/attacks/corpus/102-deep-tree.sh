# 3,000 directories inside each other in the work tree: longer than any path may be.
python3 -c 'import os
for level in range(3000): os.mkdir("d"); os.chdir("d")
open("f", "w").close()'
