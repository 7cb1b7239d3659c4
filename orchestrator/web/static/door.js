// Exchange the key of the one-time link for a session. The key is in the fragment, which browsers
// send to no server and which is removed from the history here.
const key = location.hash.slice(1);
const heading = document.getElementById("heading");
const said = document.getElementById("said");

if (key) {
  history.replaceState(null, "", "/open");
  heading.textContent = "Signing in…";
  const answer = await fetch("/open", { method: "POST", body: key, credentials: "same-origin" });
  if (answer.ok) {
    location.replace("/");
  } else {
    heading.textContent = "This link does not work";
    said.textContent = "It was used already, or belongs to another start of orchestrator ui.";
  }
}
