import { html, useGet, useLive, Page, Badge, ErrorLine, Bytes, When } from "../kit.js";

export default function Connections() {
  const { data, error, reload } = useGet("connections");
  useLive("overview", reload);
  return html`<${Page} title="Connections"><${ErrorLine} error=${error} />${data ? html`<section aria-label="Connections"><div class="scroll" tabindex="0" role="region" aria-label="Connections"><table><thead><tr><th>Address</th><th>User</th><th>Since</th><th class="number">Received</th><th class="number">Sent</th><th class="number">In flight</th><th class="number">Unsent</th><th></th></tr></thead>
    <tbody>${data.rows.slice(0, 500).map((row) => html`<tr key=${row.ref}><td>${row.address}${row.tls ? " (TLS)" : ""}</td><td>${row.user}</td><td><${When} us=${row.since_us} /></td><td class="number"><${Bytes} n=${row.bytes_in} /></td><td class="number"><${Bytes} n=${row.bytes_out} /></td><td class="number"><${Bytes} n=${row.in_flight_bytes} /></td><td class="number"><${Bytes} n=${row.unsent_bytes} /></td><td>${row.unsent_bytes && row.quiet_s >= 1 ? html`<${Badge} state="warn">reads slowly<//>` : row.is_paused ? html`<span class="quiet">at work</span>` : null}</td></tr>`)}</tbody></table></div><p class="quiet">${data.rows.length} connections${data.rows.length > 500 ? ", of which 500 are shown" : ""}; one of them is this console's.</p></section>` : null}<//>`;
}
