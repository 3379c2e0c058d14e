// The search: services, proxies and objects of the whole mesh, also those in namespaces that are not opened.
import { ask, count, h, link, mark, show, shortHost, to, toObject, toProxy, toService } from "./dom.js";

const PAUSE = 150, MOST = 200; // milliseconds; results of each sort

const sign = (one) => (one.level === "bad" ? [" ", mark("bad", "error")] : one.level === "warn" ? [" ", mark("warn", "warning")] : null);

export function listenToSearch(input, results, status) {
  let timer = 0, running = null;
  const close = () => { results.hidden = true; };
  const open = () => { results.hidden = false; };
  const links = () => [...results.querySelectorAll("a")];

  async function search(all = false) {
    const text = input.value.trim();
    running?.abort();
    if (!text) { close(); status.textContent = ""; return false; }
    running = new AbortController();
    try {
      const answer = await ask("search", all ? { text, all } : { text }, running.signal);
      draw(text, answer);
      return true;
    } catch (error) {
      if (error.name !== "AbortError") { show(results, h("p", { class: "none" }, "The control plane is not responding.")); open(); }
      return false;
    }
  }

  function draw(text, { namespaces, services, proxies, objects }) {
    const group = (title, of, item) => (of.items.length ? [h("h3", {}, title, of.total > of.items.length ? ` (${of.items.length} of ${of.total})` : ""), h("ul", {}, of.items.map((one) => h("li", {}, item(one))))] : null);
    const total = namespaces.total + services.total + proxies.total + objects.total, isNamespace = namespaces.items.some(({ name }) => text.toLowerCase().includes(name));
    show(
      results,
      group("Namespaces", namespaces, ({ name }) => link(to("namespace", name), h("b", {}, name))),
      group("Services", services, (one) => link(toService(one), h("b", {}, shortHost(one.host, one.namespace), sign(one)), h("small", {}, one.namespace))),
      group("Proxies", proxies, (one) => link(toProxy(one.id), h("b", {}, one.name))),
      group("Objects", objects, (one) => link(toObject(one), h("b", {}, `${one.namespace ? `${one.namespace}/` : ""}${one.name}`, sign(one)), h("small", {}, one.kind))),
      [services, proxies, objects].some((of) => of.total > of.items.length && of.items.length < MOST) ? h("button", { type: "button", onclick: async () => { const shown = links().length; await search(true); links()[Math.min(shown, links().length - 1)]?.focus(); } }, "Show more") : null,
      services.total > services.items.length && !isNamespace && !/\s/.test(text) ? h("p", { class: "hint" }, "To find one of them, add its namespace: ", h("code", {}, `${text} ${services.items[0].namespace}`)) : null,
      total ? null : h("p", { class: "none" }, `No match for “${text}”.`),
    );
    status.textContent = total ? `${count(namespaces.total, "namespace")}, ${count(services.total, "service")}, ${count(proxies.total, "proxy", "proxies")}, ${count(objects.total, "object")}` : "No match";
    open();
  }

  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => search(), PAUSE); });
  input.addEventListener("focus", () => { if (input.value.trim() && results.children.length) open(); });
  input.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    if (await search()) { const [first] = links(); if (first) { location.hash = first.getAttribute("href"); close(); input.blur(); } }
  });
  const move = (event) => {
    const all = links(), at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown") { event.preventDefault(); all[Math.min(at + 1, all.length - 1)]?.focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); if (at <= 0) input.focus(); else all[at - 1].focus(); }
    if (event.key === "Escape") { close(); input.focus(); }
  };
  input.addEventListener("keydown", move);
  results.addEventListener("keydown", move);
  results.addEventListener("click", (event) => { if (event.target.closest("a")) close(); });
  document.addEventListener("click", (event) => { if (!event.target.closest("#search")) close(); });
  document.addEventListener("focusin", (event) => { if (!event.target.closest("#search")) close(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) { event.preventDefault(); input.focus(); input.select(); }
  });
}
