// Exchange the key of the one-time link for a session. The key is in the fragment, which browsers
// send to no server and which is removed from the history here.
const key = location.hash.slice(1);
const heading = document.getElementById("heading");
const said = document.getElementById("said");

if (key) {
  history.replaceState(null, "", "/open");
  heading.textContent = "Signing in…";
  const answer = await send();
  if (answer === null) {
    heading.textContent = "The server does not answer";
    said.textContent = "Open the link again when orchestrator ui runs.";
  } else if (answer.ok) {
    location.replace("/");
  } else {
    heading.textContent = "This link does not work";
    said.textContent = "It was used already, or belongs to another start of orchestrator ui.";
  }
}

// Browsers abort requests when networks of containers come and go: the request is sent again.
async function send() {
  for (let wait = 250; wait < 8000; wait *= 2) {
    try {
      return await fetch("/open", { method: "POST", body: key, credentials: "same-origin" });
    } catch {
      await new Promise((done) => setTimeout(done, wait));
    }
  }
  return null;
}
