// A plan as a numbered list, and a role change that runs: asked about until its end.
const POLL_MS = 300;

export function steps(list) {
  const plan = Object.assign(document.createElement("ol"), { className: "plan" });
  for (const step of list ?? []) {
    const line = Object.assign(document.createElement("li"), { className: step.state.replace(" ", "-") });
    for (const text of [step.number, step.name, step.text, step.state]) {
      line.append(Object.assign(document.createElement("span"), { textContent: text }));
    }
    plan.append(line);
  }
  return plan;
}

export async function follow(operation, authorization, answer) {
  for (;;) {
    const response = await fetch(`/v1/operations/${operation}`, { headers: authorization ? { authorization } : {} });
    const told = await response.json();
    if (!response.ok) throw told;
    show(told, answer);
    if (told.state !== "running") return;
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

function show(told, answer) {
  const words = document.createElement("p");
  words.textContent = told.words ?? told.state;
  answer.replaceChildren(words, steps(told.steps));
}
