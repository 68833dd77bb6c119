// Starts the parts: the stream of changes, charts, messages, role changes. Without any of this the page is whole, but still.
import { charts } from "./charts.js";
import { copying } from "./copy.js";
import { live } from "./live.js";
import { messages } from "./messages.js";
import { morph } from "./morph.js";
import { roles } from "./roles.js";

document.documentElement.classList.add("live");
const drawn = charts();
const dialog = roles();
let lastMark = null;

function announce(page) {
  // Numbers change every second: only another verdict is read out.
  if (lastMark !== null && lastMark !== page.mark) document.getElementById("announce").textContent = page.title;
  lastMark = page.mark;
}

copying();
messages();
live({
  series: (columns) => drawn.start(columns),
  page: (page) => {
    for (const [id, html] of Object.entries(page.sections)) morph(document.getElementById(id), html);
    document.title = `${page.title} · twinlog`;
    announce(page);
    if (page.sample) drawn.add(page.sample, page.marks);
    dialog.members(page.candidates);
  },
});
