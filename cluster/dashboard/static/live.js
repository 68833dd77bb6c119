// The stream of changes. The browser connects again by itself; meanwhile the page says that it is old.
const SILENT_MS = 15000;

export function live(on) {
  const status = document.getElementById("live");
  let heard = Date.now();
  let at = null;

  const say = (state, words) => {
    if (status.textContent !== words) status.textContent = words;
    status.className = `live ${state}`;
  };
  const lost = () => say("off", at === null ? "connecting" : `not live: as of ${clock(at)}`);

  const source = new EventSource("/live");
  source.addEventListener("series", (event) => on.series(JSON.parse(event.data)));
  source.addEventListener("page", (event) => {
    const page = JSON.parse(event.data);
    heard = Date.now();
    at = page.at;
    on.page(page);
    say("on", `live, ${clock(at)}`);
  });
  source.onerror = lost;
  setInterval(() => Date.now() - heard > SILENT_MS && lost(), 1000);
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}
