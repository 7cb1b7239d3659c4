"""The CSS of the HTML report: a light, a dark and a print style, without other files."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f8fa; --text: #1f2328; --dim: #59636e; --line: #d1d9e0;
  --link: #0550ae; --success: #116329; --failed: #b3161f; --warn: #7d4e00; --info: #0550ae;
  --queue: #afb8c1; --prepare: #6e7781; --setup: #8250df; --agent: #218bff; --stop: #cf222e;
  --harvest: #1b7c83; --check: #2da44e; --retry: #d4a72c; --provider: #bf8700;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --panel: #161b22; --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
    --link: #79c0ff; --success: #56d364; --failed: #ff7b72; --warn: #e3b341; --info: #79c0ff;
    --queue: #6e7681; --prepare: #8b949e; --setup: #bc8cff; --agent: #388bfd; --stop: #f85149;
    --harvest: #39c5cf; --check: #3fb950; --retry: #e3b341; --provider: #d29922;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 24px 16px 64px; max-width: 1200px; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
h1, h2, h3, h4 { line-height: 1.25; margin: 0; }
h1 { font-size: 26px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 32px 0 12px; }
h3 { font-size: 16px; display: inline; overflow-wrap: anywhere; }
h4 { font-size: 13px; margin: 16px 0 6px; color: var(--dim); font-weight: 600; }
a { color: var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -9999px; }
.skip:focus { position: static; }
.run { margin: 0 0 4px; color: var(--dim); }
code, pre { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre {
  margin: 0; padding: 12px; max-height: 480px; overflow: auto; background: var(--panel);
  border: 1px solid var(--line); border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere;
}
.facts { display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 12px 0 0; }
.facts div { min-width: 0; }
dt { font-size: 12px; color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.badge {
  display: inline-block; padding: 1px 8px; border: 1px solid currentColor; border-radius: 999px;
  font-size: 12px; font-weight: 600; line-height: 18px; vertical-align: middle; color: var(--info);
}
.badge.success, .badge.finished { color: var(--success); }
.badge.failed, .badge.timeout, .badge.died { color: var(--failed); }
.badge.partial { color: var(--warn); }
figure { margin: 0; padding: 16px; border: 1px solid var(--line); border-radius: 6px; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 12px 0 0; padding: 0; list-style: none;
  font-size: 12px; color: var(--dim);
}
.legend svg { vertical-align: -1px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 12px; text-align: left; white-space: nowrap; }
thead th { font-size: 12px; color: var(--dim); font-weight: 600; background: var(--panel); }
tbody tr { border-top: 1px solid var(--line); }
tbody th { font-weight: 500; }
.task {
  display: inline-block; min-width: 160px; max-width: 340px; white-space: normal;
  overflow-wrap: anywhere;
}
.worker { margin-top: 12px; border: 1px solid var(--line); border-radius: 6px; }
summary { padding: 10px 14px; cursor: pointer; }
.worker details[open] > summary { border-bottom: 1px solid var(--line); }
.worker details > :not(summary) { margin-left: 14px; margin-right: 14px; }
.worker details > :last-child { margin-bottom: 14px; }
.message { overflow-wrap: anywhere; }
.added { color: var(--success); } .removed { color: var(--failed); }
.hunk { color: var(--info); } .file { color: var(--dim); }
@media print {
  body { max-width: none; font-size: 11px; }
  pre { max-height: none; }
  .scroll { overflow: visible; }
  .worker { break-inside: avoid-page; }
}
.timeline { display: block; width: 100%; font: 12px/1 system-ui, sans-serif; }
.timeline text { fill: var(--text); }
.timeline .tick { stroke: var(--line); }
.timeline .axis { fill: var(--dim); font-size: 11px; }
.timeline .critical { font-weight: 600; }
.timeline .pause { fill: var(--provider); opacity: .15; }
.p-queue { fill: var(--queue); } .p-prepare { fill: var(--prepare); }
.p-setup { fill: var(--setup); } .p-start { fill: var(--prepare); }
.p-agent { fill: var(--agent); } .p-stop { fill: var(--stop); }
.p-teardown { fill: var(--setup); } .p-harvest { fill: var(--harvest); }
.p-check { fill: var(--check); } .p-retry { fill: var(--retry); }
.p-provider { fill: var(--provider); }
.bad { stroke: var(--failed); stroke-width: 2; }
.wait { fill-opacity: .45; }
"""
