// On a phone, a table is a list (site.css), in which a cell says what its column is called, unless it is empty.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim())
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, column) => {
        cell.dataset.column = names[column] ?? ""
        if (!cell.textContent.trim()) cell.replaceChildren()
      })
  }
})
