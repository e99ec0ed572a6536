import { html, useState, useGet, useLive, send, say, Page, Panel, Button, Badge, Link, ErrorLine, Empty, Num, Rate, Duration } from "../kit.js";

const STATES = { running: "ok", idle: "ok", failed: "bad", lost: "bad", waiting: "warn", retrying: "warn", stopped: "idle", starting: "idle" };
const sum = (counts, names) => names.reduce((all, name) => all + (counts[name] ?? 0), 0);
const NAMES = ["to", "ok", "drop", "dead", "retry", "error"];

function Rules({ rows }) {
  const shown = NAMES.filter((name) => rows.some((row) => row.counts[name]));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Rules"><table><caption>Rules in their order, and messages since the processes have started</caption><thead><tr><th>Rule</th><th>What it does</th><th class="number">In a second</th>${shown.map((name) => html`<th class="number">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="text">${row.what}</td><td class="number"><${Rate} n=${row.per_s} /></td>${shown.map((name) => html`<td class="number">${row.counts[name] && name === "error" ? html`<span class="bad">✕ ${row.counts[name]}</span>` : html`<${Num} n=${row.counts[name] ?? 0} />`}</td>`)}</tr>`)}</tbody></table></div>`;
}

export default function Mappings() {
  const { data, error, reload } = useGet("mappings");
  const [failed, setFailed] = useState(null);
  useLive("overview", reload);
  const stop = (each) => send("POST", `pipelines/${encodeURIComponent(each.name)}/stop`, {}).then(() => { say(`${each.process} is asked to stop`); setFailed(null); reload(); }, setFailed);
  return html`<${Page} title="Mappings" actions=${html`<${Link} page="dryrun">Dry run<//>`}><${ErrorLine} error=${error ?? failed} />
    ${data && !data.rows.length ? html`<section aria-label="Mappings"><${Empty}>No mapping runs; poe mapping run FILE starts one.<//></section>` : null}
    ${(data?.rows ?? []).map((row) => {
      const otherwise = row.rules.find((each) => each.name === "otherwise");
      const troubles = row.units.filter((each) => each.error);
      return html`<${Panel} key=${row.id} title=${row.name}><dl class="cards">
        <div><dt>In a second</dt><dd><${Rate} n=${row.units.reduce((all, each) => all + each.per_s, 0)} /></dd></div>
        <div><dt>Met no rule</dt><dd>${otherwise ? html`<${Num} n=${sum(otherwise.counts, NAMES)} />` : "–"}</dd></div>
        <div><dt>Errors</dt><dd><${Num} n=${row.rules.reduce((all, each) => all + (each.counts.error ?? 0), 0)} /></dd></div>
        <div><dt>Behind by</dt><dd><${Duration} s=${Math.max(0, ...row.units.map((each) => each.lag_s ?? 0))} /></dd></div>
        <div><dt>Group</dt><dd><${Link} page="group" query=${{ group: row.group.id }}>${row.group.name}<//></dd></div></dl>
        <${Rules} rows=${row.rules} />
        <div class="scroll" tabindex="0" role="region" aria-label=${`Partitions of ${row.name}`}><table><caption>Partitions</caption><thead><tr><th>Partition</th><th>Process</th><th>State</th><th class="number">In a second</th><th class="number">Behind by</th><th>Last error</th></tr></thead>
          <tbody>${row.units.map((each) => html`<tr key=${`${each.process} ${each.name}`}><td>${each.name}</td><td>${each.process}</td><td><${Badge} state=${STATES[each.state]}>${each.state}<//></td><td class="number"><${Rate} n=${each.per_s} /></td><td class="number">${each.lag_s === null ? "–" : html`<${Duration} s=${each.lag_s} />`}</td><td class="text">${each.error}</td></tr>`)}</tbody></table></div>
        ${troubles.length ? null : html`<p class="quiet">No error since the processes have started.</p>`}
        <p>${row.processes.map((each) => html`<${Button} key=${each.name} danger level="operate" onClick=${() => stop(each)}>Stop ${each.process}<//> `)}</p><//>`;
    })}<//>`;
}
