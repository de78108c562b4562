// What a page does beyond HTML: copy buttons, and a pause for what renews itself. Every page can be
// read and used without this file.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!navigator.clipboard || !source) continue;
  const name = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = name; }, 1500);
  });
}

const pause = document.getElementById("pause");
if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
  });
}

// Nothing is renewed while it is paused, not looked at, or being read or selected.
document.addEventListener("htmx:before:request", (event) => {
  const live = document.getElementById("live");
  const selection = document.getSelection();
  const busy = live && selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  if (document.hidden || busy || pause?.getAttribute("aria-pressed") === "true") {
    event.preventDefault();
  }
});
