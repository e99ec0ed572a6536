import { html, useLive, useGet, useQuery, Page, Panel, Badge, ErrorLine, Empty, Bytes, Num, Rate, Duration, When, Chart, Link, bytesText, durationText } from "../kit.js";

const Card = ({ title, children, note }) => html`<div><dt>${title}</dt><dd>${children}${note ? html`<small>${note}</small>` : null}</dd></div>`;

export default function Overview() {
  const [query, setQuery] = useQuery();
  const range = query.range ?? "hour";
  const past = useGet("history", { range });
  const { data, error, isStale } = useLive("overview", past.reload);
  if (!data) return html`<${Page} title="Overview"><${ErrorLine} error=${error} />${error ? null : html`<p>Loading…</p>`}<//>`;
  const { node, rates, totals, limits, disk } = data;
  const refused = Object.entries(data.refused);
  const isWell = !data.troubles.length && !data.gaps;
  return html`<${Page} title="Overview" actions=${isStale ? html`<${Badge} state="warn">the node is away; this is what was known<//>` : null}>
    <${ErrorLine} error=${error} />
    <section aria-label="Health"><strong class=${isWell ? "ok" : "bad"}>${isWell ? "✓ All is well." : "✕ Not all is well."}</strong>
      ${data.gaps ? html` <span>${data.gaps} damaged places were skipped by reads.</span> <${Link} page="health">Health<//>` : null}
      ${data.troubles.length ? html`<ul>${data.troubles.map((each) => html`<li>${each.text} <${Link} page=${each.topic ? "topic" : "health"} query=${each.topic ? { topic: each.topic } : {}}>${each.topic ? "The topic" : "Health"}<//></li>`)}</ul>` : null}
      <span class="quiet"> Version ${data.version}${limits.dir ? `, folder ${limits.dir}` : ""}</span></section>
    <dl class="cards">
      <${Card} title="Put" note=${html`<${Rate} n=${rates.bytes_in} unit="bytes" />`}><${Rate} n=${rates.messages_in} /><//>
      <${Card} title="Read" note=${html`<${Rate} n=${rates.bytes_out} unit="bytes" />`}><${Rate} n=${rates.messages_out} /><//>
      <${Card} title="Put since the start" note=${html`<${Bytes} n=${totals.bytes_in} />`}><${Num} n=${totals.messages_in} /><//>
      <${Card} title="Topics" note=${limits.topics_max && `of ${limits.topics_max}`}><${Num} n=${node.topics} /><//>
      <${Card} title="Connections" note=${limits.connections_max && `of ${limits.connections_max}`}><${Num} n=${node.connections} /><//>
      <${Card} title="In flight" note=${limits.in_flight_max && `of ${bytesText(limits.in_flight_max)}`}><${Bytes} n=${node.in_flight_bytes} /><//>
      <${Card} title="Disk free" note=${disk.full_s === null ? disk.min_free === null ? "" : `${bytesText(disk.min_free)} stay free` : `full in ${durationText(disk.full_s)} at this rate`}>${disk.free === null ? "–" : html`<${Bytes} n=${disk.free} />`}<//>
      <${Card} title="Groups behind" note=${data.behind.length ? html`most: <${Link} page="group" query=${{ group: data.behind[0].id }}>${data.behind[0].name}<//>${data.is_behind_whole ? "" : ", of those that were asked"}` : data.is_behind_whole ? "all are up to date" : "not all were asked"}><${Num} n=${data.behind_total} /><//>
      <${Card} title="Read only" note="topics"><${Num} n=${node.read_only ?? 0} /><//>
      <${Card} title="Memory"><${Bytes} n=${node.memory_bytes} /><//>
      <${Card} title="Processor" note="of one core">${rates.cpu_s === undefined ? "–" : `${Math.round(rates.cpu_s * 100)} %`}<//>
      <${Card} title="Restarts"><${Num} n=${node.restarts} /><//>
      <${Card} title="Up">${node.started_us ? html`<${Duration} s=${Date.now() / 1000 - node.started_us / 1e6} />` : "–"}<//>
    </dl>
    <${Panel} title="Messages in a second"><div class="fields"><button type="button" aria-pressed=${range === "hour"} onClick=${() => setQuery({ range: undefined })}>last hour</button><button type="button" aria-pressed=${range === "day"} onClick=${() => setQuery({ range: "day" })}>last day</button></div>
      ${past.data?.times_s.length ? html`<${Chart} times_s=${past.data.times_s} series=${{ put: past.data.series.messages_in, read: past.data.series.messages_out }} caption="Messages in a second" />` : html`<${Empty}>The first two samples are awaited; one is taken every 5 s.<//>`}<//>
    ${data.behind.length ? html`<${Panel} title="Groups that are behind"><div class="scroll" tabindex="0" role="region" aria-label="Groups that are behind"><table><thead><tr><th>Group</th><th class="number">Messages</th><th class="number">Time</th></tr></thead>
      <tbody>${data.behind.map((row) => html`<tr key=${row.id}><td><${Link} page="group" query=${{ group: row.id }}>${row.name}<//></td><td class="number"><${Num} n=${row.messages} /></td><td class="number"><${Duration} s=${row.seconds} /></td></tr>`)}</tbody></table></div><//>` : null}
    <${Panel} title="What has changed in the last hour">${refused.length ? html`<p>Refused: ${refused.map(([name, count], index) => html`${index ? ", " : ""}${count} × <code>${name}</code>`)}</p>` : null}
      ${data.recent.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="What has changed"><table><thead><tr><th>When</th><th>What</th><th>Of</th><th>Reason</th><th>Who</th><th></th></tr></thead>
      <tbody>${data.recent.map((each) => html`<tr key=${`${each.seq} ${each.child}`}><td><${Link} page="instant" query=${{ time_us: each.time_us }} title="all topics at that time"><${When} us=${each.time_us} /><//></td><td>${each.kind.replaceAll("_", " ")}</td><td class="text">${each.child}</td><td class="text">${each.reason}</td><td>${each.who}</td><td>${each.seq ? html`<${Link} page="events" query=${{ why: each.seq }} aria-label=${`Why ${each.kind.replaceAll("_", " ")} ${each.child}`}>Why?<//>` : null}</td></tr>`)}</tbody></table></div>` : refused.length ? null : html`<${Empty}>Nothing.<//>`}<//>
  <//>`;
}
