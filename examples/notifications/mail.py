"""Send a notification by e-mail: `--notify "python3 mail.py you@example.org"`. Needs `sendmail`."""

import json
import subprocess
import sys
from email.message import EmailMessage


def lines(message: dict) -> list[str]:
    """Return the lines of the e-mail: those that failed, and why."""
    failed = message.get("not_successful", [message])
    told = ((one["worker_id"], one.get("message") or one.get("detail")) for one in failed)
    return [message["text"], "", *(f"worker {number}: {said}" for number, said in told if said)]


message = json.load(sys.stdin)
mail = EmailMessage()
mail["To"] = sys.argv[1]
mail["Subject"] = message["text"]
mail.set_content("\n".join(lines(message)) + "\n")
subprocess.run(["sendmail", "-t"], input=bytes(mail), check=True)  # noqa: S607
