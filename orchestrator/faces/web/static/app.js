// The web view: keeps pages current, reads logs in bounded pieces, and handles keys.
// Everything that a worker wrote arrives as escaped HTML of this server, or is set as text.

const POLL = 1000;
const SLOWEST = 10000;
const MOST_BYTES = 384 * 1024;

const byId = (id) => document.getElementById(id);
const skew = Number(document.body.dataset.now) - Date.now() / 1000;
const serverNow = () => Date.now() / 1000 + skew;

// Storage may be switched off: a choice then holds for one page.
function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {}
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// --- Times that pass.

function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)}s`;
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
}

function ago(seconds) {
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h ago`;
  return `${Math.floor(seconds / 86400)}d ago`;
}

function tick() {
  const at = serverNow();
  for (const el of document.querySelectorAll("[data-since]")) setText(el, duration(at - el.dataset.since));
  for (const el of document.querySelectorAll("[data-ago]")) setText(el, ago(at - el.dataset.ago));
}

function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// --- Pages that stay current: the server sends the page again if its version changed.

const KEPT = new Set(["open", "hidden"]);

function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(document.importNode(fresh, true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-keep") && old.dataset.key === fresh.dataset.key) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const news = [...fresh.childNodes];
  while (old.childNodes.length > news.length) old.lastChild.remove();
  news.forEach((child, index) => {
    const mine = old.childNodes[index];
    if (mine) morph(mine, child);
    else old.append(document.importNode(child, true));
  });
}

let wait = POLL;
let timer = 0;

async function refresh() {
  clearTimeout(timer);
  if (!document.hidden && "live" in document.body.dataset) await load();
}

async function load() {
  clearTimeout(timer);
  const began = performance.now();
  try {
    const headers = { "X-Version": document.body.dataset.version ?? "" };
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.status === 401) return showLive("signed out", "danger");
    if (answer.status === 200) take(await answer.text());
    else if (answer.status !== 304) throw new Error(String(answer.status));
    showLive("live" in document.body.dataset ? "Live" : "", "active");
    wait = Math.min(Math.max(POLL, 5 * (performance.now() - began)), SLOWEST);
  } catch {
    showLive("Reconnecting…", "warning");
    wait = Math.min(wait * 1.5, SLOWEST);
  }
  timer = setTimeout(refresh, wait);
}

function go(query) {
  history.replaceState(null, "", query);
  document.body.dataset.version = "";
  return load();
}

function take(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const { version, live } = page.body.dataset;
  if (version === undefined) return;
  document.title = page.title;
  const link = byId("icon"), icon = page.getElementById("icon").getAttribute("href");
  if (link.getAttribute("href") !== icon) link.setAttribute("href", icon);
  attend(Number(page.body.dataset.attention));
  morph(byId("content"), page.getElementById("content"));
  document.body.dataset.version = version;
  if (live === undefined) delete document.body.dataset.live;
  openLog();
  tick();
}

// --- Workers that need attention: a notification of the browser, if the user asked for them.

function notifies() {
  return stored("notify") === "yes" && Notification.permission === "granted";
}

function attend(number) {
  const before = Number(document.body.dataset.attention);
  document.body.dataset.attention = number;
  if (number > before && "Notification" in window && notifies()) new Notification(document.title);
}

function setUpNotify() {
  const button = byId("notify");
  if (!button || !("Notification" in window)) return;
  const show = () => button.setAttribute("aria-pressed", String(notifies()));
  button.hidden = false;
  button.addEventListener("click", async () => {
    const asks = !notifies();
    if (asks) await Notification.requestPermission();
    store("notify", asks ? "yes" : "no");
    show();
  });
  show();
}

function showLive(text, tone) {
  const el = byId("live");
  if (!el) return;
  setText(el, text);
  el.className = `live ${text ? tone : ""}`;
}

// --- Logs: the newest part at first, earlier parts on request, and never too much at once.

class LogView {
  constructor(box) {
    this.box = box;
    this.lines = byId("lines");
    this.source = box.dataset.source;
    this.end = Number(this.lines.lastElementChild.dataset.end);
    this.grows = "grows" in box.dataset;
    this.follows = this.grows;
    this.busy = false;
    byId("follow")?.addEventListener("click", () => this.follow(!this.follows));
    byId("wrap").addEventListener("click", () => this.wrap(!this.wraps));
    byId("times")?.addEventListener("click", () => this.showTimes(!box.classList.contains("timed")));
    this.showTimes(stored("times") === "yes", false);
    this.wrap((stored("wrap") ?? (innerWidth <= 600 ? "yes" : "no")) === "yes", false);
    this.follow(this.follows);
    const hit = byId("hit");
    box.scrollTop = box.scrollHeight;
    hit?.scrollIntoView({ block: "center" });
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    byId("earlier").addEventListener("click", (event) => {
      event.preventDefault();
      this.earlier();
    });
    if (this.grows) this.poll();
  }

  wrap(on, keep = true) {
    this.wraps = on;
    this.box.classList.toggle("wrapped", on);
    this.box.classList.toggle("unwrapped", !on);
    byId("wrap").setAttribute("aria-pressed", String(on));
    if (keep) store("wrap", on ? "yes" : "no");
  }

  showTimes(on, keep = true) {
    this.box.classList.toggle("timed", on);
    byId("times")?.setAttribute("aria-pressed", String(on));
    if (keep) store("times", on ? "yes" : "no");
  }

  follow(on) {
    this.follows = on && this.grows;
    byId("follow")?.setAttribute("aria-pressed", String(this.follows));
    if (this.follows) this.toEnd();
  }

  toEnd() {
    this.top = this.box.scrollHeight;
    this.box.scrollTop = this.top;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd !== this.follows && this.grows && !this.busy) this.follow(atEnd);
  }

  async poll() {
    // A reader who scrolled up is not disturbed: nothing is read until the end is shown again.
    if (this.follows && !document.hidden) await this.read().catch(() => {});
    if (this.grows) setTimeout(() => this.poll(), POLL);
  }

  async read() {
    const piece = await this.piece(`after=${this.end}`);
    if (piece.begin < this.end) this.lines.replaceChildren();
    if (piece.skipped) {
      this.note(`… ${bytes(piece.skipped)} not shown: the log grows too fast …`);
      byId("earlier").hidden = false;
    }
    if (piece.runs.length) this.lines.append(this.span(piece));
    this.end = piece.end;
    this.trim();
    if (this.follows) this.toEnd();
    if (piece.ended && piece.end === piece.size) {
      this.grows = false;
      this.follow(false);
      byId("follow").remove();
    }
  }

  async earlier() {
    const first = [...this.lines.children].find((el) => el.dataset.begin);
    const piece = await this.piece(`before=${first.dataset.begin}`);
    const height = this.box.scrollHeight;
    this.lines.prepend(this.span(piece));
    this.box.scrollTop += this.box.scrollHeight - height;
    byId("earlier").hidden = piece.begin === 0;
  }

  async piece(range) {
    const answer = await fetch(`${this.source}?${range}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  span(piece) {
    const el = document.createElement("span");
    for (const [look, text] of piece.runs) el.append(look ? coloured(look, text) : text);
    Object.assign(el.dataset, { begin: piece.begin, end: piece.end });
    return el;
  }

  note(text) {
    const el = document.createElement("em");
    el.textContent = `${text}\n`;
    this.lines.append(el);
  }

  trim() {
    const size = (el) => Number(el.dataset.end ?? 0) - Number(el.dataset.begin ?? 0);
    let total = [...this.lines.children].reduce((sum, el) => sum + size(el), 0);
    while (total > MOST_BYTES && this.lines.children.length > 1) {
      total -= size(this.lines.firstElementChild);
      this.lines.firstElementChild.remove();
      byId("earlier").hidden = false;
    }
  }
}

function coloured(look, text) {
  const el = document.createElement("span");
  el.className = look;
  el.textContent = text;
  return el;
}

// --- Search boxes, and parts of a timeline.

let typed = 0;

function withQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") query.delete(name);
    else query.set(name, value);
  }
  return `?${query}`;
}

addEventListener("input", ({ target }) => {
  if (target.id !== "search") return;
  clearTimeout(typed);
  typed = setTimeout(() => go(withQuery({ q: target.value.trim(), page: "" })), 150);
});

addEventListener("submit", (event) => {
  if (!event.target.matches(".search")) return;
  event.preventDefault();
  go(withQuery({ q: byId("search").value.trim(), page: "" }));
});

addEventListener("change", ({ target }) => {
  if (target.matches(".versus select")) target.form.submit();
});

// --- Forms that start a command: the command line follows what is typed, and can be copied.

async function showCommand(form) {
  const body = new URLSearchParams(new FormData(form));
  body.set("how", "show");
  const answer = await fetch(location.href, { method: "POST", body });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const line = page.getElementById("command");
  if (line) setText(byId("command"), line.textContent);
}

addEventListener("input", ({ target }) => {
  const form = target.closest?.("form[data-command]");
  if (!form) return;
  clearTimeout(typed);
  typed = setTimeout(() => showCommand(form).catch(() => {}), 250);
});

function setUpCopy() {
  const button = byId("copy");
  if (!button || !navigator.clipboard) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(byId("command").textContent);
    setText(button, "Copied");
  });
}

addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(target)) menu.open = false;
});

// A click on the number of a line chooses the line for a comment.
addEventListener("click", ({ target }) => {
  const form = byId("comment"), cell = target.closest?.(".diff .n[data-n]");
  if (!form || !cell) return;
  const cells = [...cell.parentElement.querySelectorAll(".n")];
  const halves = cell.closest(".halves"), fresh = cells[1].dataset.n;
  const old = halves ? cell === cells[0] : !fresh;
  form.elements.file.value = cell.closest("details").id.slice(1);
  form.elements.side.value = old ? "old" : "new";
  form.elements.line.value = old || halves ? cell.dataset.n : fresh;
  form.classList.add("chosen");
  form.elements.text.focus();
});

let drag = null;

addEventListener("pointerdown", (event) => {
  const cell = event.target.closest?.(".w-track");
  if (!cell || event.button !== 0 || event.pointerType === "touch" || !byId("zoom-in")) return;
  const track = cell.querySelector("svg").getBoundingClientRect();
  const mark = document.createElement("div");
  mark.className = "range";
  drag = { track, mark, start: event.clientX, end: event.clientX };
  event.preventDefault();
});

addEventListener("pointermove", (event) => {
  if (!drag) return;
  drag.end = Math.min(Math.max(event.clientX, drag.track.left), drag.track.right);
  if (!drag.mark.isConnected) document.body.append(drag.mark);
  const box = document.querySelector(".workers").getBoundingClientRect();
  Object.assign(drag.mark.style, {
    left: `${Math.min(drag.start, drag.end) + scrollX}px`,
    width: `${Math.abs(drag.end - drag.start)}px`,
    top: `${box.top + scrollY}px`,
    height: `${box.height}px`,
  });
});

addEventListener("pointerup", () => {
  if (!drag) return;
  const { track, mark, start, end } = drag;
  drag = null;
  mark.remove();
  if (Math.abs(end - start) < 8) return;
  const place = (x) => moment((100 * (x - track.left)) / track.width);
  location.search = withQuery({
    from: place(Math.min(start, end)).toFixed(1),
    to: place(Math.max(start, end)).toFixed(1),
  });
});

// The second of the run at a place of the timeline, in percent: its scale changes where it waits.
function moment(place) {
  const stretches = JSON.parse(byId("axis").dataset.stretches);
  const [from, to, x, width] = stretches.find((one) => place <= one[2] + one[3]) ?? stretches.at(-1);
  return from + ((place - x) / width) * (to - from);
}

function bytes(number) {
  let value = number;
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${value.toFixed(1).replace(/\.0$/, "")} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

// --- Themes and keys.

function changeTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  store("theme", next);
}

function step(count) {
  const items = [...document.querySelectorAll("a.item")];
  const place = items.indexOf(document.activeElement);
  const next = items[Math.min(Math.max(place + count, 0), items.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function neighbour(count) {
  const all = [...document.querySelectorAll(".rail li a")];
  const place = all.findIndex((el) => el.hasAttribute("aria-current"));
  all[place + count]?.click();
}

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  "[": () => neighbour(-1),
  "]": () => neighbour(1),
  u: () => [...document.querySelectorAll(".crumbs a")].at(-1)?.click(),
  f: () => log?.follow(true),
  "/": () => byId("search")?.focus(),
  "+": () => byId("zoom-in")?.click(),
  "-": () => byId("zoom-out")?.click(),
  0: () => byId("zoom-all")?.click(),
  t: changeTheme,
  "?": () => byId("keys").showModal(),
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = Number(event.key);
  if (tab >= 1) document.querySelectorAll(".tabs a")[tab - 1]?.click();
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
});

byId("theme").addEventListener("click", changeTheme);
let log = null;

function openLog() {
  const box = byId("log");
  if (box && log?.box !== box) log = new LogView(box);
}

openLog();
setUpNotify();
setUpCopy();
addEventListener("visibilitychange", refresh);
setInterval(tick, 1000);
tick();
refresh();
