// What a page does beyond HTML: copy buttons, and a pause for what renews itself. Every page can be
// read and used without this file.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source) continue;
  const name = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = (await copied(source)) ? "Copied" : "Select it, then press Ctrl-C";
    setTimeout(() => { button.textContent = name; }, 1500);
  });
}

// A page without TLS has no clipboard of its own: there the text is selected and copied.
async function copied(source) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  }
  document.getSelection().selectAllChildren(source);
  return document.execCommand("copy");
}

// "/" goes to the search of the page, or else to that of everything.
document.addEventListener("keydown", (event) => {
  const search = document.querySelector('main input[type="search"], main input[name="find"]')
    ?? document.querySelector('input[type="search"]');
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName);
  if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});

const pause = document.getElementById("pause");
if (pause) {
  const show = (paused) => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
  };
  pause.hidden = false;
  show(sessionStorage.getItem("paused") === "true");  // it stays paused on the next page
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    sessionStorage.setItem("paused", String(paused));
    show(paused);
  });
}

// Nothing is renewed while it is paused, not looked at, selected, or while a message is open.
function isHeld() {
  const live = document.getElementById("live");
  const selection = document.getSelection();
  const busy = live && selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  const open = live?.querySelector(".messages details[open]");
  return document.hidden || busy || open || pause?.getAttribute("aria-pressed") === "true";
}

// The button says why the list stands still.
document.addEventListener("toggle", (event) => {
  const live = document.getElementById("live");
  if (!pause || !event.target.matches?.(".messages details")) return;
  const open = live?.querySelector(".messages details[open]");
  const paused = pause.getAttribute("aria-pressed") === "true";
  pause.textContent = open && !paused ? "Held while a message is open" : paused ? "Paused" : "Pause";
}, true);

// A renewal says which content it replaces: if it is still that, the answer is empty (304), and
// only the ages of the sources are new.
let known = null;
document.addEventListener("htmx:before:request", (event) => {
  if (isHeld()) return event.preventDefault();
  if (known) event.detail.ctx.request.headers["If-None-Match"] = known;
});
document.addEventListener("htmx:after:request", (event) => {
  if (isHeld()) return event.preventDefault();
  const { status, headers } = event.detail.ctx.response;
  known = status === 200 || status === 304 ? headers.get("etag") : null;
  const ages = (status === 304 && headers.get("x-source-ages")?.split("; ")) || [];
  document.querySelectorAll(".ages span").forEach((one, at) => {
    if (ages[at]) one.textContent = ages[at];
  });
});
