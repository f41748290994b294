// What a part of the page should look like, as plain values; and how the document is made so.
//
// Only what differs is touched: whoever selects a text, has a key's focus somewhere or has opened
// something keeps it while the page is brought up to date. Texts become text nodes, whatever is
// in them: nothing here, or anywhere on the page, makes markup out of a string.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element as a value; children are elements, texts, lists of these, or nothing. */
export function h(name, attributes, ...children) {
  return { name, attributes: attributes ?? {}, children: present(children) };
}

/** Make the children of a node be these. */
export function show(parent, ...wanted) {
  const children = present(wanted);
  children.forEach((child, index) => {
    const there = place(parent, index, child);
    if (typeof child === "string") {
      if (there.data !== child) there.data = child;
    } else {
      dress(there, child.attributes);
      show(there, child.children);
    }
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

function present(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (typeof child === "object" ? child : String(child)));
}

/** Return the node for a child: one that is there already, or a new one. */
function place(parent, index, child) {
  const rest = [...parent.childNodes].slice(index);
  const found = rest.findIndex((node) => fits(node, child));
  if (found < 0) return parent.insertBefore(make(parent, child), rest[0] ?? null);
  // A node that is moved loses the focus: those before it go instead.
  rest.slice(0, found).forEach((node) => node.remove());
  return rest[found];
}

function fits(node, child) {
  if (typeof child === "string") return node.nodeType === Node.TEXT_NODE;
  return node.localName === child.name && node.key === child.attributes.key;
}

function make(parent, child) {
  if (typeof child === "string") return document.createTextNode(child);
  const inSvg = child.name === "svg" || parent.namespaceURI === SVG;
  const node = inSvg ? document.createElementNS(SVG, child.name) : document.createElement(child.name);
  node.key = child.attributes.key;
  return node;
}

function dress(node, attributes) {
  const { key: _, ...given } = attributes;
  for (const [name, value] of Object.entries(given)) {
    const text = value === true ? "" : String(value);
    const isThere = value !== null && value !== undefined && value !== false;
    if (!isThere) node.removeAttribute(name);
    else if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
  for (const name of node.given ?? []) if (!(name in given)) node.removeAttribute(name);
  node.given = Object.keys(given);
}
