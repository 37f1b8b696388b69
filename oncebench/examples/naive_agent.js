// The same agent for Node: it sends, then notes what is done.
//     oncebench run -- node naive_agent.js
const fs = require("node:fs");

const url = process.env.ONCEBENCH_URL;
const notes = "done.txt";

async function refund(order, amount) {
  const response = await fetch(`${url}/refunds`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ order, amount }),
    signal: AbortSignal.timeout(2000),
  });
  if (!response.ok) throw new Error(`the service answered ${response.status}`);
  await response.json();
}

async function main() {
  const done = fs.existsSync(notes) ? fs.readFileSync(notes, "utf8").split("\n") : [];
  for (const order of ["o1", "o2", "o3"]) {
    if (done.includes(order)) continue;
    await refund(order, 100);
    fs.appendFileSync(notes, `${order}\n`);
  }
}

main();
