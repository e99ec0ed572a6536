// The frame of all pages: navigation, log-in, theme, shortcuts.
import { html, render, useState, useEffect, usePlace, get, send, session, Link, go, Page, ErrorLine, Field, Dialog, shortcuts, useKeys, setAnnouncer, isUtc } from "./kit.js";

const PAGES = [
  { page: "overview", title: "Overview", key: "o" },
  { page: "topics", title: "Topics", key: "t" },
  { page: "topic", title: "Topic", isHidden: true },
  { page: "messages", title: "Messages", isHidden: true },
  { page: "instant", title: "One time", key: "i" },
  { page: "follow", title: "Follow", key: "f" },
  { page: "groups", title: "Groups", key: "p" },
  { page: "group", title: "Group", isHidden: true },
  { page: "dead", title: "Dead letters", key: "d" },
  { page: "mappings", title: "Mappings", key: "m" },
  { page: "dryrun", title: "Dry run", key: "y" },
  { page: "pipelines", title: "Pipelines", key: "l" },
  { page: "cluster", title: "Cluster", key: "u" },
  { page: "tree", title: "Tree", key: "r" },
  { page: "events", title: "Events", key: "e" },
  { page: "connections", title: "Connections", key: "c" },
  { page: "health", title: "Health", key: "h" },
];
const loaded = new Map();

function Login({ kind, onDone }) {
  const [error, setError] = useState(null);
  const [given, setGiven] = useState({ user: "", password: "" });
  const [token, setToken] = useState("");
  const enter = (body) => send("POST", "login", body).then(() => {
    if (location.pathname.endsWith("/login")) go("overview", {}, true);
    onDone();
  }, setError);
  useEffect(() => {
    const take = () => {
      const given = location.hash.slice(1);
      if (kind !== "token" || !given) return;
      history.replaceState(null, "", location.pathname);
      setToken(given);
      enter({ token: given });
    };
    take();
    addEventListener("hashchange", take); // the next URL in the same tab: it differs in the token alone, and so loads nothing
    return () => removeEventListener("hashchange", take);
  }, []);
  const submit = (event) => { event.preventDefault(); enter(kind === "user" ? given : { token: token.split("#").at(-1).trim() }); };
  return html`<main class="page"><section class="narrow"><h1>Poe</h1><${ErrorLine} error=${error} /><form class="stack" onSubmit=${submit}>
    ${kind === "user" ? html`<${Field} label="User"><input autocomplete="username" value=${given.user} onInput=${(event) => setGiven({ ...given, user: event.target.value })} /><//>
      <${Field} label="Password"><input type="password" autocomplete="current-password" value=${given.password} onInput=${(event) => setGiven({ ...given, password: event.target.value })} /><//>`
    : html`<p>Open the URL that <code>poe console</code> has printed last, or paste it here. Each is good for one browser.</p>
      <${Field} label="URL or token"><input value=${token} onInput=${(event) => setToken(event.target.value)} /><//>`}
    <button class="main">Log in</button></form></section></main>`;
}

function Help({ onClose }) {
  const rows = [...PAGES.filter((each) => each.key).map((each) => [`g ${each.key}`, each.title]), ["/", "to the filter"], ["?", "this list"], ...shortcuts];
  return html`<${Dialog} title="Shortcuts" onClose=${onClose}><table><tbody>${rows.map(([key, text]) => html`<tr><td><code>${key}</code></td><td>${text}</td></tr>`)}</tbody></table>
    <form method="dialog"><button>Close</button></form><//>`;
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  dispatchEvent(new Event("poe-theme"));
}

function App() {
  const { page, query } = usePlace();
  const [state, setState] = useState(null);
  const [error, setError] = useState(null);
  const [broken, setBroken] = useState({});
  const [, setTurn] = useState(0);
  const [isHelping, setIsHelping] = useState(false);
  const [said, setSaid] = useState("");
  const look = () => get("session").then((found) => { Object.assign(session, found); setState(found); setError(null); }, setError);
  useEffect(() => {
    look();
    setAnnouncer(setSaid);
    theme(localStorage.getItem("poe-theme"));
    const back = () => session.level === "none" && look(); // somebody may have logged in in another tab
    addEventListener("poe-logged-out", look);
    addEventListener("focus", back);
    return () => { removeEventListener("poe-logged-out", look); removeEventListener("focus", back); };
  }, []);
  useEffect(() => { if (page === "login" && state && state.level !== "none") go("overview", {}, true); }, [page, state]);
  const entry = PAGES.find((each) => each.page === page);
  useEffect(() => {
    if (!entry || loaded.has(page)) return;
    import(`./pages/${page}.js`).then(({ default: Shown }) => { loaded.set(page, Shown); setTurn((old) => old + 1); }, (why) => setBroken({ page, why }));
  }, [page]);
  const gone = { pending: false };
  const keys = { "?": () => setIsHelping(true), "/": () => document.querySelector("input[type=search]")?.focus(), g: () => {
    if (gone.pending) return;
    gone.pending = true;
    addEventListener("keydown", (event) => {
      gone.pending = false;
      const isMeant = !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select, textarea, dialog");
      const found = isMeant && PAGES.find((each) => each.key === event.key);
      if (found) { event.preventDefault(); event.stopImmediatePropagation(); go(found.page); }
    }, { once: true, capture: true });
  } };
  useKeys(keys);
  if (error && !state) return html`<${Page} title="Poe"><${ErrorLine} error=${error} /><button type="button" onClick=${look}>Try again</button><//>`;
  if (!state) return html`<main class="page"><p>Loading…</p></main>`;
  if (state.level === "none") return html`<${Login} kind=${state.login} onDone=${look} />`;
  const Shown = loaded.get(page);
  const choose = (event) => { localStorage.setItem("poe-theme", event.target.value); theme(event.target.value); };
  return html`<nav aria-label="Pages"><strong>Poe</strong>
    ${PAGES.filter((each) => !each.isHidden).map((each) => html`<${Link} page=${each.page} aria-current=${each.page === page ? "page" : undefined}>${each.title}<//>`)}
    <div class="foot"><span>${state.user ?? "one-time token"}, may ${state.level}</span>
      <${Field} label="Theme"><select value=${localStorage.getItem("poe-theme") ?? ""} onChange=${choose}><option value="">as the system</option><option value="light">light</option><option value="dark">dark</option></select><//>
      <button type="button" aria-pressed=${isUtc()} onClick=${() => { localStorage.setItem("poe-utc", isUtc() ? "0" : "1"); setTurn((old) => old + 1); dispatchEvent(new Event("poe-place")); }}>Times in UTC</button>
      <button type="button" onClick=${() => setIsHelping(true)}>Shortcuts (?)</button>
      <button type="button" onClick=${() => send("POST", "logout", {}).then(look, look)}>Log out</button></div></nav>
    ${!entry ? html`<${Page} title="There is no such page"><${Link} page="overview">To the overview<//><//>` : Shown ? html`<${Shown} key=${page} query=${query} />`
      : broken.page === page ? html`<${Page} title=${entry.title}><${ErrorLine} error=${broken.why} /><button type="button" onClick=${() => location.reload()}>Try again</button><//>` : html`<main class="page"><p>Loading…</p></main>`}
    <div class="hidden" aria-live="polite">${said}</div>
    ${isHelping ? html`<${Help} onClose=${() => setIsHelping(false)} />` : null}`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
