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

// "/" goes to the search of the page.
document.addEventListener("keydown", (event) => {
  const search = document.querySelector('input[type="search"]');
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
document.addEventListener("htmx:before:request", (event) => {
  const live = document.getElementById("live");
  const selection = document.getSelection();
  const busy = live && selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  const open = live?.querySelector(".messages details[open]");
  if (document.hidden || busy || open || pause?.getAttribute("aria-pressed") === "true") {
    event.preventDefault();
  }
});
