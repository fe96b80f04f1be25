// A worker of a queue on PostgreSQL, without a client library: it waits, answers, and its rollbacks count.
//
//     npm install pg
//     DIALOQ_URL=postgres://me@host/shop node worker.mjs orders [--until-empty]
//
// The definitions are those of ../shop.sql or of the tutorial: `dialoq apply` makes them.
import { randomUUID } from "node:crypto";
import pg from "pg";

const [queue, untilEmpty] = [process.argv[2], process.argv.includes("--until-empty")];
const open = async () => { const c = new pg.Client(process.env.DIALOQ_URL); await c.connect(); return c; };
// Work and its transaction; beside it a connection for what must stay after a rollback, and for LISTEN.
const [work, beside] = [await open(), await open()];
// A notification that comes while nobody waits is kept: the message may have come behind the last receive.
let [woken, wake] = [false, () => {}];
beside.on("notification", () => { woken = true; wake(); });
await beside.query("LISTEN dialoq");
const found = await beside.query("SELECT object_id FROM dialoq.sys_service_queues WHERE name = $1", [queue]);
const queueId = found.rows[0].object_id;

for (;;) {
  woken = false;
  await work.query("BEGIN");
  const { rows } = await work.query(
    `SELECT conversation_group_id, conversation_handle, message_type_name, message_body FROM dialoq.receive($1, 10)`, [queue]);
  if (rows.length === 0) {
    await work.query("ROLLBACK");
    if (untilEmpty) break;
    // Woken by a commit; a lock that another worker frees sends nothing, so look each 5 s too.
    if (!woken) {
      let timer;
      await new Promise((resolve) => { wake = resolve; timer = setTimeout(resolve, 5000); });
      clearTimeout(timer);
    }
    continue;
  }
  const attempt = randomUUID();
  await beside.query("SELECT dialoq.begin_attempt($1, $2, $3)", [attempt, queueId, rows[0].conversation_group_id]);
  try {
    for (const { conversation_handle: handle, message_type_name: kind, message_body: body } of rows) {
      if (!/\/(EndDialog|Error)$/.test(kind)) await handleOrder(handle, body);
    }
    // After all their messages, and once for each: a SEND or a second END would be refused behind it. An order has a
    // conversation of its own: END erases what has not been received, so with more orders END on EndDialog and Error only.
    for (const handle of new Set(rows.map((row) => row.conversation_handle))) {
      await work.query("SELECT dialoq.end_conversation($1)", [handle]);
    }
    await work.query("SELECT dialoq.commit_attempt($1)", [attempt]);
    await work.query("COMMIT");
  } catch (error) {
    console.error("rolled back:", error.message);
    await work.query("ROLLBACK");
    await beside.query("SELECT dialoq.count_rollback($1)", [attempt]);
  }
}
await Promise.all([work.end(), beside.end()]);

async function handleOrder(handle, body) {
  const text = (body ?? Buffer.of()).toString();
  if (text === '"poison"') throw new Error("this order cannot be done");
  console.log("order", text);
  await work.query("SAVEPOINT answer");    // for a refusal that is no failure
  try {
    await work.query("SELECT dialoq.send($1, $2, $3)", [handle, "//shop/OrderPlaced", Buffer.from('{"number":7}')]);
  } catch (error) {
    if (error.detail !== "dialoq 8429") throw error;    // the other side has ended, and takes no answer
    await work.query("ROLLBACK TO SAVEPOINT answer");
  }
}
