# Prints CI commands in pieces: in two writes, with colours and invisible characters between.
#: ends failed agent_failed
for piece in '#' '#v' 'so[task.pre' 'pendpath]/tmp/PWNED' '\n:' ':add-mask:' ':PWNED\n'; do
  printf "$piece"; sleep 0.05
done
printf '#\033[31m#\033[0mvso[task.prependpath]PWNED\n\033[1m::\033[0madd-mask::PWNED\n'
printf '#\342\200\213#[add-mask]PWNED\n\357\270\217::add-mask::PWNED\n\315\217::add-mask::PWNED\n'
printf 'x\302\205::add-mask::PWNED\nx\342\200\250::add-mask::PWNED\nx\013::add-mask::PWNED\nx\0::add-mask::x\n'
head -c 65535 /dev/zero | tr '\0' x; printf '::add-mask::PWNED\n'
head -c 65534 /dev/zero | tr '\0' x; printf '##vso[task.prependpath]PWNED\n'
printf '\r\r\r::add-mask::PWNED\r##vso[task.prependpath]PWNED' >&2
exit 3
