for (const box of document.querySelectorAll(".threshold")) {
  const steps = JSON.parse(box.dataset.steps), input = box.querySelector("input"), out = box.querySelector("output");
  const show = () => { out.textContent = steps[input.value]; input.setAttribute("aria-valuetext", steps[input.value]); };
  input.addEventListener("input", show);
  show();
  box.hidden = false;
}
