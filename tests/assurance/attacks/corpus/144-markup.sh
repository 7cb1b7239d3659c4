# Uses markup in names, messages and output: HTML, Markdown, CI commands, CSV, rich.
#: ends failed agent_failed
python3 -c 'for name in (b"<script>alert(1)<!script>", b"| a | b |", b"[link](http:!!localhost)",
  b"::error file=x::PWNED", b"##vso[task.setvariable variable=x]PWNED", b"=cmd|\x27!C calc\x27!A0",
  b"[bold red]PWNED[!bold red]", b"![x](x)", b"{{7*7}}", b"&lt;&#x1b;"):
    open(name, "w").close()'
git add -A; git commit -qm "::set-output name=x::PWNED" -m "##[error]PWNED" -m "[link=x]y[/link] [/]"
printf '{"type": "orchestrator.report", "status":"failed","message":"[/] [bold]x[/nope]\\n::stop-commands::PWNED"}\n'
echo '::add-mask::PWNED [/] [blink]x[/]' >&2
exit 4
