# Commits with forged headers: a signature with text for git's output, an invalid date, an encoding.
#: ends success
signed() {
  { echo "tree $(git rev-parse "HEAD^{tree}")"; echo "parent $(git rev-parse HEAD)"
    echo "author a <a@a> 1700000000 +0000"; echo "committer a <a@a> $1 +0000"; echo "encoding UTF-7"
    printf 'gpgsig -----BEGIN PGP SIGNATURE-----\n %s\n -----END PGP SIGNATURE-----\n' "$(git rev-parse HEAD)"
    printf 'mergetag object %s\n type commit\n tag x\n\n\033]0;PWNED\007\n' "$(git rev-parse HEAD)"
    echo; echo signed
  } | git hash-object -t commit -w --stdin --literally
}
git update-ref HEAD "$(signed 1700000000)"; git update-ref HEAD "$(signed 4102444800)"
