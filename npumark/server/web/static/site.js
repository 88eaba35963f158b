// The pages work without this; it saves a few clicks.
"use strict";

// A filter takes effect as soon as a choice is made.
for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  for (const control of form.querySelectorAll("select, input[type=checkbox]")) {
    control.addEventListener("change", () => form.requestSubmit());
  }
  // Addresses without the filters that are not set.
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) {
      if (value === "") event.formData.delete(name);
    }
  });
}

// Comparing: the bar follows along, and says how many more it takes.
for (const form of document.querySelectorAll("form[data-compare]")) {
  const bar = form.querySelector("[data-picked]");
  const text = form.querySelector("[data-picked-text]");
  const button = bar.querySelector("button");
  const boxes = [...form.querySelectorAll("input[name=id]")];
  const told = text.textContent;
  text.setAttribute("role", "status");
  const update = () => {
    const marked = boxes.filter((box) => box.checked).length;
    bar.classList.toggle("active", marked > 0);
    button.disabled = marked < 2;
    text.textContent =
      marked === 0 ? told : marked === 1 ? "1 result marked; mark another one." : `${marked} results marked.`;
    for (const box of boxes) box.disabled = marked >= 4 && !box.checked;
  };
  for (const box of boxes) box.addEventListener("change", update);
  window.addEventListener("pageshow", update);
  update();
}

// A command can be copied where the browser allows it.
for (const block of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.append(button);
}
