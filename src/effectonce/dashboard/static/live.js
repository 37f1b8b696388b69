// Keeps an open page up to date: on "something changed" it asks for itself again, and puts the new
// content in the place of the old one. What was typed, ticked, opened or focused stays.
"use strict";
(() => {
  let source = null, busy = false, again = false;
  const main = () => document.getElementById("main");
  const FIELDS = "input:not([type=hidden]), textarea, select";

  function nameOf(field) {
    if (field.id) return "#" + field.id;
    const value = field.type === "checkbox" || field.type === "radio" ? field.value : "";
    return [field.form ? field.form.getAttribute("action") : "", field.name, value].join(" ");
  }

  function changed(field) {
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.tagName === "SELECT") return [...field.options].some((each) => each.selected !== each.defaultSelected);
    return field.value !== field.defaultValue;
  }

  function keep(old, fresh) {
    const fields = new Map([...fresh.querySelectorAll(FIELDS)].map((field) => [nameOf(field), field]));
    for (const field of old.querySelectorAll(FIELDS)) {
      const its = fields.get(nameOf(field));
      if (!its || !changed(field)) continue;
      if (field.type === "checkbox" || field.type === "radio") its.checked = field.checked;
      else its.value = field.value;
    }
    const opened = [...old.querySelectorAll("details")];
    [...fresh.querySelectorAll("details")].forEach((each, number) => {
      if (opened[number]) each.open = opened[number].open;
    });
  }

  function focusAgain(fresh, focused) {
    if (!focused) return;
    const wanted = focused.matches(FIELDS) ? nameOf(focused) : focused.getAttribute("href");
    const its = [...fresh.querySelectorAll(FIELDS + ", a")].find((each) =>
      (each.matches(FIELDS) ? nameOf(each) : each.getAttribute("href")) === wanted);
    if (!its) return;
    its.focus({ preventScroll: true });
    if (focused.selectionStart != null && its.setSelectionRange) its.setSelectionRange(focused.selectionStart, focused.selectionEnd);
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href);
      if (answer.status >= 500) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = document.adoptNode(page.getElementById("main")), old = main();
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const { scrollX, scrollY } = window;
      keep(old, fresh);
      old.replaceWith(fresh);
      if (window.htmx) window.htmx.process(fresh);
      focusAgain(fresh, focused);
      window.scrollTo(scrollX, scrollY);
      note();
      if (!fresh.dataset.live) close();
    } catch { /* the server is away: the stream comes back with it */ } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  }

  function note() {
    for (const each of main().querySelectorAll("[data-live-note]")) each.hidden = source === null;
  }

  function open() {
    if (source || document.hidden || !main().dataset.live) return;
    source = new EventSource(main().dataset.live);
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => { if (source && source.readyState === EventSource.CLOSED) { close(); refresh(); } });
    note();
  }

  function close() {
    if (source) source.close();
    source = null;
    note();
  }

  // A browser has six connections for one server: a page that is not seen needs none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (main().dataset.live) { open(); refresh(); }
  });
  open();
})();
