// What can be scrolled can be reached with the keyboard.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper, .diagram"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
});
