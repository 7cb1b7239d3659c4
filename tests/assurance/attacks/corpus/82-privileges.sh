# Checks whether setuid programs gain privileges, and whether system calls are filtered.
#: always NoNewPrivs=1
#: always Seccomp=2
for field in NoNewPrivs Seccomp; do
  report "$field=$(awk "/^$field:/{print \$2}" /proc/self/status)"
done
