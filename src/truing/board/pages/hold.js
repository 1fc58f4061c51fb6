// A page is drawn anew when something else is asked of it: what had the keyboard's focus has it again.

// Holds what has the focus now, by its name (data-hold); what it returns gives the focus back where it can.
export function hold(page) {
  const element = document.activeElement;
  const name = page.contains(element) ? element.dataset.hold : undefined;
  return () => {
    const again = name && page.querySelector(`[data-hold="${CSS.escape(name)}"]`);
    if (!again) return false;
    again.focus({ preventScroll: true });
    if (again.type === "search") again.setSelectionRange(again.value.length, again.value.length);
    return true;
  };
}

// Whether somebody is writing into the page: words that the address does not know yet.
export function writing(page) {
  const element = document.activeElement;
  return page.contains(element) && element.tagName === "INPUT" && element.value !== element.defaultValue;
}
