// Makes an element's inside equal to HTML from the server and touches only what differs, so that focus, selection and scrolling stay.
const parser = new DOMParser(); // What it parses runs no script.

export function morph(element, html) {
  if (!element) return;
  children(element, parser.parseFromString(html, "text/html").body);
}

function children(old, wanted) {
  const now = [...wanted.childNodes];
  now.forEach((node, i) => {
    const there = old.childNodes[i];
    if (!there) old.append(document.importNode(node, true));
    else if (!alike(there, node)) there.replaceWith(document.importNode(node, true));
    else if (node.nodeType === Node.TEXT_NODE) {
      if (there.data !== node.data) there.data = node.data;
    } else same(there, node);
  });
  while (old.childNodes.length > now.length) old.lastChild.remove();
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.id === other.id;
}

function same(old, wanted) {
  for (const { name, value } of [...wanted.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  children(old, wanted);
}
