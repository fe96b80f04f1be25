"""A worker of a queue on PostgreSQL, without a client library: it waits, answers, and its rollbacks count.

    pip install 'psycopg[binary]'
    DIALOQ_URL=postgres://me@host/shop python worker.py orders [--until-empty]

The definitions are those of ../shop.sql or of the tutorial: `dialoq apply` makes them.
"""
import os, sys, uuid
import psycopg

def main(queue, until_empty):
    url = os.environ["DIALOQ_URL"]
    # Work and its transaction; beside it a connection for what must stay after a rollback, and for LISTEN.
    with psycopg.connect(url) as work, psycopg.connect(url, autocommit=True) as beside:
        beside.execute("LISTEN dialoq")
        row = beside.execute("SELECT object_id FROM dialoq.sys_service_queues WHERE name = %s", [queue]).fetchone()
        queue_id = row[0]
        while True:
            messages = work.execute(
                "SELECT conversation_group_id, conversation_handle, message_type_name, message_body"
                " FROM dialoq.receive(%s, 10)", [queue]).fetchall()
            if not messages:
                work.rollback()
                if until_empty:
                    return
                # Woken by a commit; a lock that another worker frees sends nothing, so look each 5 s too.
                for _ in beside.notifies(timeout=5, stop_after=1):
                    pass
                continue
            attempt = uuid.uuid4()
            beside.execute("SELECT dialoq.begin_attempt(%s, %s, %s)", [attempt, queue_id, messages[0][0]])
            try:
                for _, handle, kind, body in messages:
                    if not kind.endswith(("/EndDialog", "/Error")):
                        handle_order(work, handle, body)
                # After all their messages, and once for each: a SEND or a second END would be refused behind it. An order has a
                # conversation of its own: END erases what has not been received, so with more orders END on EndDialog and Error only.
                for handle in {handle for _, handle, _, _ in messages}:
                    work.execute("SELECT dialoq.end_conversation(%s)", [handle])
                work.execute("SELECT dialoq.commit_attempt(%s)", [attempt])
                work.commit()
            except Exception as error:
                print(f"rolled back: {error}", file=sys.stderr)
                work.rollback()
                beside.execute("SELECT dialoq.count_rollback(%s)", [attempt])

def handle_order(work, handle, body):
    text = bytes(body or b"").decode()
    if text == '"poison"':
        raise ValueError("this order cannot be done")
    print("order", text, flush=True)
    try:
        with work.transaction():    # a savepoint, for a refusal that is no failure
            work.execute("SELECT dialoq.send(%s, %s, %s)", [handle, "//shop/OrderPlaced", b'{"number":7}'])
    except psycopg.Error as error:
        if error.diag.message_detail != "dialoq 8429":    # the other side has ended, and takes no answer
            raise

main(sys.argv[1], "--until-empty" in sys.argv)
