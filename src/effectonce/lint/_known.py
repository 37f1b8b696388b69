"""What other people's names mean here: which calls are effects, which decorators make tools,
what retries, what changes by itself.

Names are as `Module.origin` writes them: `httpx.Client().post` is the method of what
`httpx.Client()` returns.
"""

from __future__ import annotations

import re

Frameworks = tuple[tuple[re.Pattern[str], str, str], ...]


def words(text: str) -> frozenset[str]:
    """A set of names."""
    return frozenset(text.split())


# A file with none of these words, in small letters, has nothing that a rule is about. What sends
# counts together with a loop, or a server.
WORDS = words(
    "effectonce guard idempot deduplicationid clienttoken clientrequesttoken retry tenacity backoff"
    " stamina sleep( redis core.cache langchain langgraph function_tool pydantic_ai mcp crewai"
    " google.adk autogen strands agent_framework beta_ smolagents llama_index temporalio celery"
    " dbos dramatiq breaker"
)
SENDS = words(
    "requests niquests httpx aiohttp urllib3 stripe braintree razorpay smtp mail sendgrid resend"
    " postmark boto3 kafka twilio slack telegram"
)
LOOPS = words("while range(")
SERVES = words("fastapi starlette flask quart ninja litestar sanic aiohttp")

# ---------------------------------------------------------------- effects

HTTP = re.compile(
    r"(?:requests|niquests|httpx2?)\.(?:post|put|patch|delete|request)"
    r"|(?:(?:requests|niquests)\.(?:sessions\.)?[sS]ession|niquests\.AsyncSession|httpx2?\.(?:Async)?Client|aiohttp\.(?:client\.)?ClientSession)"
    r"\(\)\.(?:post|put|patch|delete|request)"
    r"|urllib3\.(?:request|(?:PoolManager|ProxyManager|HTTPS?ConnectionPool)\(\)\.(?:request|urlopen))"
)
_STRIPE = (
    "accept|cancel|capture|confirm|create|create_refund|create_reversal|finalize_invoice|modify|pay|refund|reverse|send_invoice"
    "|update|void_invoice"
)
# What is done, by the name of the call. Each is one that a second time does a second time.
EFFECTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (rf"stripe\.(?:[a-z_]+\.)*[A-Z]\w+\.(?:{_STRIPE})(?:_async)?", "changes something at Stripe"),
        (rf"stripe\.StripeClient\(\)\.[\w.]+\.(?:{_STRIPE})(?:_async)?", "changes something at Stripe"),
        (r"braintree\.(?:BraintreeGateway\(\)\.transaction|Transaction)\.(?:sale|refund|submit_for_settlement|void)", "moves money"),
        (r"razorpay\.Client\(\)\.(?:order|payment|refund|transfer|payout)\.(?:create|refund|capture|transfer)", "moves money"),
        (r"smtplib\.(?:SMTP|SMTP_SSL|LMTP)\(\)\.(?:send_message|sendmail)", "sends mail"),
        (r"aiosmtplib\.(?:send|SMTP\(\)\.(?:send_message|sendmail))", "sends mail"),
        (r"django\.core\.mail\.(?:send_mail|send_mass_mail|mail_admins|mail_managers)", "sends mail"),
        (r"django\.core\.mail\.(?:message\.)?Email(?:Message|MultiAlternatives)\(\)\.send", "sends mail"),
        (r"flask_mail\.Mail\(\)\.send(?:_message)?", "sends mail"),
        (r"sendgrid\.(?:SendGridAPIClient\(\)|\w+\.SendGridAPIClient\(\))\.send", "sends mail"),
        (r"resend\.(?:Emails|Batch)\.send", "sends mail"),
        (r"postmarker\.core\.PostmarkClient\(\)\.emails\.(?:send|send_batch)", "sends mail"),
        (r"boto3\.ses\(\)\.send_(?:email|raw_email|templated_email|bulk_templated_email)", "sends mail"),
        (r"boto3\.sesv2\(\)\.send_(?:email|bulk_email)", "sends mail"),
        (r"boto3\.sns\(\)\.publish(?:_batch)?", "publishes a message"),
        (r"boto3\.sqs\(\)\.send_message(?:_batch)?", "puts a message into a queue"),
        (r"boto3\.events\(\)\.put_events|boto3\.kinesis\(\)\.put_records?", "publishes an event"),
        (r"(?:kafka|aiokafka)\.(?:AIO)?KafkaProducer\(\)\.send(?:_and_wait)?|confluent_kafka\.Producer\(\)\.produce", "publishes a message"),
        (r"twilio\.rest\.Client\(\)\.(?:messages|calls)\.create(?:_async)?", "sends a message"),
        (r"(?:slack_sdk|slack)\.(?:[\w.]+\.)?(?:Async)?WebClient\(\)\.(?:chat_\w*[mM]essage|files_upload\w*)", "posts to Slack"),
        (r"slack_sdk\.(?:[\w.]+\.)?(?:Async)?WebhookClient\(\)\.send", "posts to Slack"),
        (r"telegram\.Bot\(\)\.send_\w+", "sends a message"),
    )
)  # fmt: skip
# A quick look at a call's last name: most calls are none of these.
VERBS = words(
    "post put patch delete request urlopen send sendmail send_message send_and_wait send_batch"
    " produce publish publish_batch send_email send_raw_email send_templated_email"
    " send_bulk_templated_email send_bulk_email send_message_batch put_events put_record"
    " put_records send_mail send_mass_mail mail_admins mail_managers sale submit_for_settlement"
    " void"
)
VERB_LIKE = re.compile(rf"(?:{_STRIPE}|transfer)(?:_async)?|chat_\w+|files_upload\w*|send_\w+")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
REPEATABLE_METHODS = ("PUT", "DELETE")  # a second one changes nothing more
# A POST that only asks, by where it goes and by what its function, or the class of its tool, is
# called.
ASKING_URL = re.compile(
    r"search|query|queries|graphql|oauth|token|login|authenticate|embed|complet|lookup|find|validat|verify|preview|quote|estimat"
    r"|translat|summari|generat|predict|infer|chat|classif|analy|count|rpc|retriev|rerank|moderation|transcri|ocr|scrap|crawl|extract"
    r"|pars|eval|detect|serp",
    re.IGNORECASE,
)
ASKING_FIRST = words(
    "find list get check fetch ask count preview quote estimate validate verify read complete chat"
    " calculate compute login authenticate generate"
)
ASKING = words(
    "search query lookup serp scrape crawl parse eval evaluate evaluation extract embed embedding"
    " translate summarize summarise classify analyze analyse ocr transcribe retrieve retriever"
    " rerank predict detect inference"
)
# A POST that sets what it is given: a second one changes nothing more. By the first word of its
# function.
SETTING_FIRST = words(
    "update refresh set save sync upsert replace reset reload enable disable configure test ping"
)
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
KEYED = re.compile(
    r"idempot|dedup|downstream_key|current_effect|request_key|key_as|client_?token|client_?request_?token",
    re.IGNORECASE,
)
# They call what they are given first, and wait for it.
IN_A_THREAD = words(
    "asyncio.to_thread anyio.to_thread.run_sync starlette.concurrency.run_in_threadpool"
    " fastapi.concurrency.run_in_threadpool"
)

# ---------------------------------------------------------------- tools

# The decorator, what it makes, and the rooms of `effectonce.integrations` that protect it from
# where the agent is made.
TOOLS: Frameworks = tuple(
    (re.compile(pattern), name, adapter)
    for pattern, name, adapter in (
        (r"langchain(?:_core|_classic)?\.(?:tools|agents)(?:\.\w+)?\.tool", "tool of LangChain", "langchain"),
        (r"agents(?:\.tool)?\.function_tool", "tool of OpenAI Agents", "openai_agents"),
        (r"pydantic_ai(?:\.agent)?\.Agent\(\)\.tool(?:_plain)?", "tool of Pydantic AI", "pydantic_ai"),
        (r"pydantic_ai\.(?:toolsets\.(?:\w+\.)?)?FunctionToolset\(\)\.tool(?:_plain)?", "tool of Pydantic AI", "pydantic_ai"),
        (r"fastmcp(?:\.\w+)*\.FastMCP\(\)\.tool", "tool of an MCP server", "fastmcp"),
        (r"mcp\.server\.(?:\w+\.)*(?:FastMCP|MCPServer)\(\)\.tool", "tool of an MCP server", "mcp"),
        (r"crewai\.tools(?:\.\w+)?\.tool", "tool of CrewAI", "crewai"),
        (r"google\.adk\.tools\.(?:\w+\.)*FunctionTool", "tool of Google ADK", "google_adk"),
        (r"autogen_core\.tools\.(?:\w+\.)*FunctionTool", "tool of AutoGen", "autogen"),
        (r"strands\.(?:tools\.(?:\w+\.)*)?tool", "tool of Strands", "strands"),
        (r"agent_framework\.(?:tool|ai_function)", "tool of the Agent Framework", "agent_framework"),
        (r"anthropic\.(?:lib\.tools\.)?beta_(?:async_)?tool", "tool of Anthropic's runner", "anthropic_runner"),
        (r"smolagents\.(?:tools\.)?tool", "tool of smolagents", ""),
        (r"llama_index\.core\.tools\.(?:\w+\.)*FunctionTool\.from_defaults", "tool of LlamaIndex", ""),
    )
)  # fmt: skip
# What takes plain functions as tools, in a list.
AGENTS: Frameworks = tuple(
    (re.compile(pattern), name, adapter)
    for pattern, name, adapter in (
        (r"google\.adk(?:\.agents(?:\.\w+)?)?\.(?:Llm)?Agent", "tool of Google ADK", "google_adk"),
        (r"autogen_agentchat\.agents\.AssistantAgent", "tool of AutoGen", "autogen"),
        (r"pydantic_ai(?:\.agent)?\.Agent", "tool of Pydantic AI", "pydantic_ai"),
        (r"langchain\.agents\.create_agent|langgraph\.prebuilt\.(?:create_react_agent|ToolNode)", "tool of LangChain", "langchain"),
        (r"agent_framework\.(?:Chat)?Agent", "tool of the Agent Framework", "agent_framework"),
    )
)  # fmt: skip
# The same for what engines run again by themselves. Their rooms give a place, not protection: it
# takes `@guard.tool` as well.
ENGINES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"temporalio\.activity\.defn", "activity of Temporal"),
        (r"celery\.(?:app\.(?:base\.)?)?Celery\(\)\.task|celery\.shared_task|celery\.app\.shared_task", "task of Celery"),
        (r"\.*(?:[\w.]+\.)?celery(?:_app)?\.(?:celery_)?app\.task|\.*(?:[\w.]+\.)?celery_app\.task", "task of Celery"),
        (r"dbos\.(?:_dbos\.)?DBOS(?:\(\))?\.step", "step of DBOS"),
        (r"dramatiq\.(?:actor\.)?actor", "actor of Dramatiq"),
    )
)  # fmt: skip
# Decorators of endpoints, and whether they are of an ASGI server, which our middleware can stand
# before.
ENDPOINTS: tuple[tuple[re.Pattern[str], bool], ...] = tuple(
    (re.compile(pattern), is_asgi)
    for pattern, is_asgi in (
        (r"fastapi\.(?:\w+\.)?(?:FastAPI|APIRouter)\(\)\.(?:post|patch|api_route)", True),
        (r"starlette\.(?:applications\.Starlette|routing\.Router)\(\)\.route", True),
        (r"quart\.(?:\w+\.)?(?:Quart|Blueprint)\(\)\.(?:post|patch|route)", True),
        (r"litestar\.(?:[\w.]+\.)?(?:post|patch)", True),
        (r"sanic\.(?:\w+\.)?(?:Sanic|Blueprint)\(\)\.(?:post|patch|route)", True),
        (r"flask\.(?:\w+\.)?(?:Flask|Blueprint)\(\)\.(?:post|patch|route)", False),
        (r"ninja\.(?:\w+\.)?(?:NinjaAPI|Router)\(\)\.(?:post|patch|api_operation)", False),
        (r"aiohttp\.web\.RouteTableDef\(\)\.(?:post|patch)", False),
    )
)
TOOL_CLASSES = {
    "langchain_core.tools.BaseTool": ("tool of LangChain", "langchain"),
    "langchain.tools.BaseTool": ("tool of LangChain", "langchain"),
    "crewai.tools.BaseTool": ("tool of CrewAI", "crewai"),
    "autogen_core.tools.BaseTool": ("tool of AutoGen", "autogen"),
}
TOOL_METHODS = ("_run", "_arun", "run")
# made here, or imported under that name
GUARD = re.compile(r"effectonce(?:\.guard)?\.Guard\(\)|\.*(?:[\w.]+\.)?guard")

# ---------------------------------------------------------------- what is another one each time

FRESH = re.compile(
    r"uuid\.uuid[147]|uuid\.getnode|time\.(?:time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns)"
    r"|datetime\.(?:datetime\.)?(?:now|utcnow|today)|pendulum\.now|arrow\.(?:now|utcnow)|django\.utils\.timezone\.now"
    r"|random\.\w+|random\.(?:Random|SystemRandom)\(\)\.\w+|secrets\.token_\w+|secrets\.randbits|os\.urandom|shortuuid\.(?:uuid|random|ShortUUID\(\)\.\w+)"
    r"|ulid\.(?:new|ULID)|nanoid\.generate|cuid2?\.\w+|ksuid\.\w+|numpy\.random\.\w+"
)
CLOCK = re.compile(r"time\.|datetime\.|pendulum\.|arrow\.|django\.utils\.timezone\.")
COARSE = words("date isocalendar year month day weekday start_of floor toordinal replace")
FINE_FORMAT = re.compile(r"%[HIMSfsXcpT]|HH|mm|ss")
ATTEMPT = words(
    "attempt attempts attempt_number attempt_no attempt_num attempt_count attempt_index retries"
    " retry_count retry_number retry_num retry_attempt num_retries n_retries try_number try_count"
    " tries"
)
CALL_IDS = words("tool_call_id toolcallid tool_use_id tooluseid function_call_id")
TOOL_CALLS = words("tool_call toolcall tool_use function_call tc")
# One for each request: in headers, under these names, kept by a framework, or asked of a function.
REQUEST_HEADER = re.compile(
    r"(?:http[-_])?(?:x[-_])?(?:request|correlation|trace|b3[-_]trace|amzn[-_](?:trace|request))[-_]?id|(?:http[-_])?traceparent"
    r"|x[-_]cloud[-_]trace[-_]context",
    re.IGNORECASE,
)
REQUEST_NAMES = words(
    "trace_id traceid span_id spanid traceparent x_request_id x_correlation_id x_trace_id"
    " http_request_id"
)
REQUEST_KEPT = words("request_id correlation_id")
REQUEST_KEPT_BY = words("request req g ctx context state")
REQUEST_ASKED = re.compile(
    r"(?:(?:get|current|get_current|new|make|generate|format)_)?(?:request|correlation|trace|span)_id(?:_(?:var|ctx|contextvar|context))?"
)
PERSONAL = words("email e_mail email_address user_email customer_email phone phone_number ssn")

# ---------------------------------------------------------------- retries

_RETRY_DECORATORS = words(
    "tenacity.retry tenacity.Retrying tenacity.AsyncRetrying backoff.on_exception"
    " backoff.on_predicate stamina.retry stamina.retry_context retrying.retry retry.retry"
    " retry.api.retry"
)
RETRY_DECORATORS = {name: name.partition(".")[0] for name in _RETRY_DECORATORS}  # their library
BREAKERS = re.compile(
    r"circuitbreaker\.(?:circuit|CircuitBreaker(?:\(\))?)|pybreaker\.CircuitBreaker\(\)|aiobreaker\.CircuitBreaker\(\)|purgatory\.\w+\(\)\.\w+"
)
OPEN_CIRCUIT = re.compile(
    r"(?:pybreaker|circuitbreaker|aiobreaker)\.CircuitBreakerError|purgatory\.(?:\w+\.)*OpenedState|effectonce(?:\.errors)?\.CircuitOpen"
)
EVERYTHING = frozenset({"builtins.Exception", "builtins.BaseException"})
# After these it is unknown whether it happened: the answer may have been lost.
LOST_ANSWER = re.compile(
    r"builtins\.(?:TimeoutError|ConnectionError|ConnectionResetError|ConnectionAbortedError|BrokenPipeError|OSError|IOError)"
    r"|asyncio\.(?:exceptions\.)?TimeoutError|socket\.(?:timeout|error)|concurrent\.futures\.TimeoutError"
    r"|requests\.(?:exceptions\.)?(?:RequestException|Timeout|ReadTimeout|ConnectionError|ChunkedEncodingError)"
    r"|httpx2?\.(?:HTTPError|RequestError|TransportError|TimeoutException|ReadTimeout|NetworkError|ReadError|RemoteProtocolError)"
    r"|aiohttp\.(?:ClientError|ClientConnectionError|ServerTimeoutError|ServerDisconnectedError|ServerConnectionError|ClientOSError)"
    r"|urllib3\.exceptions\.(?:HTTPError|ProtocolError|ReadTimeoutError|TimeoutError)|urllib\.error\.URLError"
    r"|(?:openai|anthropic)\.(?:APIError|APIConnectionError|APITimeoutError)|stripe\.(?:error\.)?(?:StripeError|APIConnectionError)"
    r"|smtplib\.(?:SMTPException|SMTPServerDisconnected)|botocore\.exceptions\.(?:ReadTimeoutError|ConnectionClosedError|HTTPClientError)"
)
# The same request gets the same answer, however often.
FINAL = re.compile(
    r"(?:openai|anthropic)\.(?:BadRequestError|AuthenticationError|PermissionDeniedError|NotFoundError|UnprocessableEntityError)"
    r"|stripe\.(?:error\.)?(?:CardError|InvalidRequestError|AuthenticationError|PermissionError|IdempotencyError)"
    r"|effectonce(?:\.errors)?\.(?:ContractViolation|Conflict|Expired|InDoubt)"
    r"|botocore\.exceptions\.ParamValidationError|smtplib\.(?:SMTPAuthenticationError|SMTPRecipientsRefused)"
)
SLEEP = words("time.sleep asyncio.sleep anyio.sleep trio.sleep gevent.sleep eventlet.sleep")
SDKS = re.compile(
    r"(?:openai\.(?:Async)?(?:Azure)?OpenAI|openai\.AsyncAzureOpenAI|anthropic\.(?:Async)?Anthropic(?:Bedrock|Vertex)?)\(\)"
)
URLLIB3_RETRY = re.compile(
    r"urllib3\.(?:util\.)?(?:retry\.)?Retry|requests\.(?:adapters|packages\.urllib3\.util(?:\.retry)?)\.Retry"
)
