// Run in a page: returns every visible text whose contrast with what is behind it is under 4.5.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const seen = new Map();

function channels(colour) {
  if (!seen.has(colour)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    seen.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]);
  }
  return seen.get(colour);
}

// Relative luminance as WCAG 2 defines it.
function luminance(colour) {
  const [r, g, b] = colour.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function behind(node) {
  for (; node; node = node.parentElement) {
    const colour = channels(getComputedStyle(node).backgroundColor);
    if (colour[3] > 240) return colour;
  }
  return [255, 255, 255];
}

const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const [text, node] = [walker.currentNode.textContent.trim(), walker.currentNode.parentElement];
  if (!text || !node.checkVisibility() || node.closest("[aria-disabled=true], .hidden, .skip, script, option")) continue;
  const style = getComputedStyle(node);
  const colours = [channels(node.tagName === "text" ? style.fill : style.color), behind(node)].map(luminance);
  const ratio = (Math.max(...colours) + 0.05) / (Math.min(...colours) + 0.05);
  if (ratio < 4.5) found.push([node.className.baseVal ?? node.className, text.slice(0, 30), ratio.toFixed(2)]);
}
return found;
