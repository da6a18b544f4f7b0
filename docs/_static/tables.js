// On a phone, a table of three columns or more is a list (site.css): each cell then says what its column is called.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim())
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, column) => (cell.dataset.column = names[column] ?? ""))
  }
})
