// Keeps the keyboard focus while a page is drawn again.

// Remembers the focused element by its name (data-hold) and returns a function that restores the focus if it can.
export function keepFocus(page) {
  const element = document.activeElement;
  const name = page.contains(element) ? element.dataset.hold : undefined;
  return () => {
    const restored = name && page.querySelector(`[data-hold="${CSS.escape(name)}"]`);
    if (!restored) return false;
    restored.focus({ preventScroll: true });
    if (restored.type === "search") restored.setSelectionRange(restored.value.length, restored.value.length);
    return true;
  };
}

// Whether the user is typing text that is not in the address yet.
export function isTyping(page) {
  const element = document.activeElement;
  return page.contains(element) && element.tagName === "INPUT" && element.value !== element.defaultValue;
}
