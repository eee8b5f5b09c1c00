#include "controller/page.h"

namespace weft::controller {

// All text from agents and users goes through textContent, never through markup.
const char kPage[] = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weft controller</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; opacity: .75; padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; }
meter { width: 8rem; }
#status { opacity: .75; }
#status.error { color: #c22; opacity: 1; }
</style>
</head>
<body>
<header>
<h1>Weft controller</h1>
<p id="status" role="status">loading</p>
</header>
<main>
<section aria-labelledby="jobs-heading">
<h2 id="jobs-heading">Jobs</h2>
<div class="scroll"><table>
<caption>Measured iteration time beside the planned one</caption>
<thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col" class="number">Flows</th>
<th scope="col" class="number">Iteration</th><th scope="col" class="number">Planned</th>
<th scope="col" class="number">Sends</th><th scope="col" class="number">Epoch</th>
<th scope="col">Ranks on</th></tr></thead>
<tbody id="jobs"></tbody>
</table></div>
</section>
<section aria-labelledby="why-heading">
<h2 id="why-heading">Why</h2>
<p id="outlook">no plan of all jobs yet</p>
<div class="scroll"><table>
<caption>What was decided for each job together with the others; the reasons, and what was rejected</caption>
<thead><tr><th scope="col">Job</th><th scope="col">Class</th><th scope="col" class="number">Predicted</th>
<th scope="col" class="number">Bound</th><th scope="col" class="number">Gap</th><th scope="col" class="number">Shift</th>
<th scope="col">Reasons</th></tr></thead>
<tbody id="why"></tbody>
</table></div>
</section>
<section aria-labelledby="links-heading">
<h2 id="links-heading">Links</h2>
<div class="scroll"><table>
<caption>By load, the fullest first; bytes of all jobs in the last second</caption>
<thead><tr><th scope="col">From</th><th scope="col">To</th><th scope="col">Load</th>
<th scope="col" class="number">Used</th><th scope="col" class="number">Available</th>
<th scope="col" class="number">Configured</th><th scope="col">Jobs</th></tr></thead>
<tbody id="links"></tbody>
</table></div>
</section>
<section aria-labelledby="decisions-heading">
<h2 id="decisions-heading">Decisions</h2>
<div class="scroll"><table>
<caption>The newest first; time since the controller started</caption>
<thead><tr><th scope="col" class="number">Time</th><th scope="col">Kind</th><th scope="col">Job</th>
<th scope="col" class="number">Epoch</th><th scope="col">Reason</th></tr></thead>
<tbody id="decisions"></tbody>
</table></div>
</section>
<section aria-labelledby="hosts-heading">
<h2 id="hosts-heading">Hosts</h2>
<div class="scroll"><table>
<caption>Hosts whose agent has been here</caption>
<thead><tr><th scope="col">Host</th><th scope="col">Agent</th><th scope="col">Addresses</th></tr></thead>
<tbody id="hosts"></tbody>
</table></div>
</section>
</main>
<script>
"use strict";
const rate = (bps) => {
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bps >= size) return (bps / size).toPrecision(3) + " " + unit;
  }
  return bps.toFixed(0) + " bit/s";
};
const time = (s) => s > 0 ? (s < 1 ? (1e3 * s).toPrecision(3) + " ms" : s.toPrecision(3) + " s") : "–";
const fill = (id, rows) => {
  const body = document.getElementById(id);
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const td = document.createElement("td");
      if (cell instanceof Node) td.append(cell);
      else if (cell !== null && typeof cell === "object") { td.textContent = cell.number; td.className = "number"; }
      else td.textContent = cell;
      row.append(td);
    }
    return row;
  }));
};
const meter = (link) => {
  const bar = document.createElement("meter");
  bar.max = 1; bar.high = 0.9; bar.value = Math.min(1, link.utilisation);
  bar.textContent = Math.round(100 * link.utilisation) + " %";
  bar.setAttribute("aria-label", "load of " + link.from + " to " + link.to);
  return bar;
};
const percent = (ratio) => (100 * ratio).toFixed(1) + " %";
const reasons = (job) => {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const joint = job.joint || {model: "none", why: ["not planned together with the others yet"], rejected: []};
  summary.textContent = joint.why.length > 1 ? joint.why[1] : joint.why[0] || "";
  details.append(summary);
  for (const text of [...job.why, ...joint.why, ...joint.rejected.map((r) => "rejected: " + r)]) {
    const line = document.createElement("div");
    line.textContent = text;
    details.append(line);
  }
  return details;
};
const open = new Set();
const explain = (job) => {
  const details = reasons(job);
  details.open = open.has(job.job_id);
  details.addEventListener("toggle", () => details.open ? open.add(job.job_id) : open.delete(job.job_id));
  return details;
};
const showWhy = (state) => {
  fill("why", state.jobs.filter((j) => j.state !== "released").map((j) => [j.job_id,
    j.joint ? j.joint.traffic_class + " of " + j.joint.classes + " (DSCP " + j.joint.dscp + ")" : "–",
    {number: time(j.joint ? j.joint.predicted_s : 0)}, {number: time(j.joint ? j.joint.bound_s : 0)},
    {number: j.joint && j.joint.bound_s > 0 ? percent(j.joint.gap) : "–"}, {number: time(j.joint ? j.joint.shift_s : 0)},
    explain(j)]));
  const all = state.outlook;
  document.getElementById("outlook").textContent = all.decided_s > 0 ? "GPU use of " + all.jobs + " modelled jobs " +
    percent(all.gpu_use) + ", over plain ECMP " + percent(all.gpu_use_default) + ", bound " +
    percent(all.gpu_use_bound) + ", gap " + percent(all.gap) + (all.notes.length ? "; " + all.notes.join("; ") : "")
    : "no plan of all jobs yet";
};
const show = (state) => {
  showWhy(state);
  fill("jobs", state.jobs.map((j) => [j.name ? j.job_id + " (" + j.name + ")" : j.job_id, j.state, {number: j.flows},
    {number: time(j.iteration_s)}, {number: time(j.predicted_iteration_s)}, {number: rate(j.send_rate_bps)},
    {number: j.policy_epoch}, j.rank_hosts.join(", ")]));
  fill("links", [...state.links].sort((a, b) => b.utilisation - a.utilisation).slice(0, 200).map((l) => [l.from, l.to,
    meter(l), {number: rate(l.used_bps)}, {number: rate(l.available_bps)}, {number: rate(l.line_rate_bps)},
    l.jobs.join(", ")]));
  fill("decisions", [...state.decisions].reverse().slice(0, 100).map((d) => [
    {number: d.time_s.toFixed(1) + " s"}, d.kind, d.job_id || "all", {number: d.epoch}, d.reason]));
  fill("hosts", state.hosts.map((h) => [h.host, h.connected ? "connected" : "away", h.addresses.join(", ")]));
  const status = document.getElementById("status");
  status.className = "";
  status.textContent = "cluster " + state.cluster + ", mode " + state.mode + ", up " +
    state.uptime_s.toFixed(0) + " s, " + state.replans + " re-plans, " + state.policy_epochs + " policy epochs";
};
const refresh = async () => {
  try {
    const answer = await fetch("/api/v1/state", {cache: "no-store"});
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(await answer.json());
  } catch (error) {
    const status = document.getElementById("status");
    status.className = "error";
    status.textContent = "no answer from the controller: " + error.message;
  }
  setTimeout(refresh, 2000);
};
refresh();
</script>
</body>
</html>
)html";

}  // namespace weft::controller
