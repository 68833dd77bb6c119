// The dialog for role changes. The token is in its field only: it is sent with the change, and gone when the dialog closes.
import { morph } from "./morph.js";

const POLL_MS = 300;

export function roles() {
  const get = (id) => document.getElementById(id);
  const dialog = get("roles");
  const answer = get("role-answer");
  const runForm = get("role-run-form"); // Not there when the dashboard is read-only.
  let groups = {};
  let planned = null;

  const verb = () => get("role-verb").value;
  const say = (words) => (answer.textContent = words);
  const offer = (isOffered) => runForm && (runForm.hidden = !isOffered);

  function forgetPlan() {
    planned = null;
    answer.replaceChildren();
    offer(false);
  }

  function fillCandidates() {
    const members = groups[get("role-group").value] ?? [];
    const options = members.filter(([, role]) => role === "slave").map(([name, , state]) => new Option(`${name}, ${state}`, name));
    if (verb() === "switchover") options.unshift(new Option("the best slave", ""));
    get("role-candidate").replaceChildren(...options);
  }

  async function post(path, body, headers = {}) {
    return fetch(path, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });
  }

  async function preview() {
    forgetPlan();
    say("Asking all members…");
    const body = { group: get("role-group").value, candidate: get("role-candidate").value, reason: get("role-reason").value };
    const response = await post("/plan", { ...body, verb: verb() });
    morph(answer, await response.text());
    if (!response.ok) return;
    planned = body.candidate ? body : { group: body.group, reason: body.reason };
    offer(true);
  }

  async function run() {
    const headers = { authorization: `Bearer ${get("role-token").value}`, "idempotency-key": key() };
    offer(false);
    const response = await post(`/v1/${verb()}`, planned, headers);
    const told = await response.json();
    if (!response.ok) {
      answer.replaceChildren(...[told.error, told.why, told.next].filter(Boolean).map(paragraph));
      offer(response.status === 401); // Another token may do.
      return;
    }
    await follow(told.operation);
  }

  async function follow(operation) {
    for (;;) {
      const response = await fetch(`/changes/${operation}`);
      const told = await response.json();
      if (!response.ok) return say(told.error);
      morph(answer, told.html);
      if (told.state !== "running") return;
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }

  const guarded = (work) => async (event) => {
    event.preventDefault();
    try {
      await work();
    } catch {
      say("The dashboard does not answer. What was begun goes on.");
    }
  };

  get("open-roles").addEventListener("click", () => {
    forgetPlan();
    fillCandidates();
    dialog.showModal();
  });
  get("role-close").addEventListener("click", () => {
    runForm?.reset();
    dialog.close();
  });
  dialog.addEventListener("close", () => runForm?.reset());
  for (const id of ["role-group", "role-verb"]) get(id).addEventListener("change", () => (fillCandidates(), forgetPlan()));
  for (const id of ["role-candidate", "role-reason"]) get(id).addEventListener("input", forgetPlan);
  get("role-form").addEventListener("submit", guarded(preview));
  get("role-typed")?.addEventListener("input", (event) => event.target.setCustomValidity(""));
  runForm?.addEventListener(
    "submit",
    guarded(async () => {
      const typed = get("role-typed");
      if (typed.value === planned.group) return run();
      typed.setCustomValidity(`Type ${planned.group}`);
      typed.reportValidity();
    }),
  );

  return { members: (now) => (groups = now) };
}

function paragraph(text, i) {
  return Object.assign(document.createElement("p"), { textContent: text, className: i ? "" : "refused" });
}

function key() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
