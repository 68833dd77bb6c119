// Buttons that copy a command. Where the browser forbids it, the command is selected instead.
export function copying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  });
}
