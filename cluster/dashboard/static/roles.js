// The dialog for role changes. The token is in its field only: it is sent with the change, and gone when the dialog closes.
import { follow, steps } from "./operation.js";

export function roles() {
  const get = (id) => document.getElementById(id);
  const dialog = get("roles");
  const answer = get("role-answer");
  const runForm = get("role-run-form");
  let groups = {};
  let planned = null;

  const ask = () => ({
    group: get("role-group").value,
    candidate: get("role-candidate").value || null,
    reason: get("role-reason").value,
  });
  const forgetPlan = () => {
    planned = null;
    answer.replaceChildren();
    if (runForm) runForm.hidden = true;
  };
  const say = (words, kind = "") => answer.append(Object.assign(document.createElement("p"), { textContent: words, className: kind }));

  function fillCandidates() {
    const verb = get("role-verb").value;
    const slaves = (groups[get("role-group").value] ?? []).filter(([, role]) => role === "slave");
    const options = slaves.map(([name, , state]) => new Option(`${name}, ${state}`, name));
    if (verb === "switchover") options.unshift(new Option("the best slave", ""));
    get("role-candidate").replaceChildren(...options);
  }

  async function post(body, headers = {}) {
    const verb = get("role-verb").value;
    const response = await fetch(`/v1/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    const told = await response.json().catch(() => ({ error: `The dashboard answered ${response.status}.` }));
    if (!response.ok) throw told;
    return told;
  }

  function refuse(told) {
    answer.replaceChildren();
    say(told.error ?? String(told), "refused");
    for (const words of [told.why, told.next]) if (words) String(words).split("\n").forEach((line) => say(line));
  }

  get("open-roles").addEventListener("click", () => {
    forgetPlan();
    fillCandidates();
    dialog.showModal();
  });
  get("role-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    if (get("role-token")) get("role-token").value = get("role-typed").value = "";
  });
  for (const id of ["role-group", "role-verb"]) get(id).addEventListener("change", () => (fillCandidates(), forgetPlan()));
  get("role-candidate").addEventListener("change", forgetPlan);

  get("role-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    forgetPlan();
    say("Asking all members…", "quiet");
    try {
      const body = ask();
      const plan = await post({ ...body, dryRun: true }, authorization());
      answer.replaceChildren();
      say("This is what would be done. Nothing has been changed yet.");
      answer.append(steps(plan.steps));
      planned = body;
      if (runForm) runForm.hidden = false;
    } catch (told) {
      refuse(told);
    }
  });

  const authorization = () => (get("role-token")?.value ? { authorization: `Bearer ${get("role-token").value}` } : {});

  runForm?.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (get("role-typed").value !== planned.group) {
      get("role-typed").setCustomValidity(`Type ${planned.group}`);
      get("role-typed").reportValidity();
      return;
    }
    const headers = { ...authorization(), "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()).slice(2) };
    runForm.hidden = true;
    try {
      const begun = await post(planned, headers);
      await follow(begun.operation, headers.authorization, answer);
    } catch (told) {
      refuse(told);
      runForm.hidden = false;
    }
    get("role-typed").value = "";
  });
  get("role-typed")?.addEventListener("input", (event) => event.target.setCustomValidity(""));

  return {
    members(now) {
      groups = now;
    },
  };
}
