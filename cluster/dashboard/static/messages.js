// Looks at messages without loading the page anew: the same form, the same answer.
export function messages() {
  const form = document.getElementById("peek");
  const found = document.getElementById("found");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = new URLSearchParams(new FormData(form));
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      const token = document.getElementById("peek-token")?.value; // Asked for where others than this machine can look.
      const answer = await fetch(`/messages?${query}`, token ? { headers: { authorization: `Bearer ${token}` } } : {});
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      found.replaceChildren(...page.body.childNodes);
    } catch {
      found.textContent = "The dashboard does not answer.";
    } finally {
      button.disabled = false;
    }
  });
}
