# Prints and commits CI commands: in lines, names, messages, after carriage returns and tabs.
#: ends failed agent_failed
printf '::add-mask::PWNED\n \t::set-env name=A::PWNED\n50%%\r::add-path::/tmp/PWNED\n'
printf '##[add-mask]PWNED\nx ##vso[task.prependpath]/tmp/PWNED\n##teamcity[buildStatus text=PWNED]\n'
printf '##octopus[setVariable name=PWNED]\n--- PWNED\n+++ PWNED\n~~~ PWNED\n^^^ +++\n'
printf '\033[0Ksection_start:1:PWNED\r\033[0Kx\n::stop-commands::PWNED\n' >&2
mkdir -p '##[add-path]x' && touch '##[add-path]x/##vso[task.prependpath]PWNED' '::add-mask::PWNED' \
  "$(printf 'x\n::add-mask::PWNED')" "$(printf 'x\r##[add-mask]PWNED')"
git add -A
git commit -qm '##vso[task.prependpath]PWNED' -m '::add-mask::PWNED' --author='##[add-mask]x <::add-mask::PWNED>'
echo '##vso[task.setvariable variable=PATH]PWNED' >&2
exit 3
