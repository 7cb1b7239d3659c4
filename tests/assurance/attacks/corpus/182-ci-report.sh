# Reports CI commands: in the message, escaped in JSON, beside numbers and the status.
#: ends failed agent_failed
printf '%s\n' '{"type": "orchestrator.report", "status": "failed", "message": "\u0023\u0023vso[task.prependpath]PWNED\n\u003a\u003aadd-mask::PWNED"}'
printf '%s\n' '{"type": "orchestrator.report", "status": "failed", "steps": "##vso[a.b]PWNED", "cost": "::add-mask::PWNED", "message": ["##[x]"]}'
printf '%s\n' '{"type": "orchestrator.report", "status": "failed", "message": "x\r\u2028::stop-commands::PWNED\u0085::PWNED::\ud800##[add-mask]PWNED"}'
exit 3
