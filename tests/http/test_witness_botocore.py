"""A protected client of AWS is a witness: botocore against a queue that speaks SQS's JSON, and
counts its messages.
"""

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ReadTimeoutError

from effectonce import Retry
from effectonce.http.client import protect
from effectonce.retries.clients import inner_attempts
from tests.http.callers import SOON
from tests.http.server import Shop
from tests.http.twice import DONE, DOUBT, FAILED_BEFORE, GAVE_UP, each_way, ended
from tests.servers.listener import Listener

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("collected")]  # theirs
IDENTITY = {"region_name": "eu-west-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}


class Queue(Shop):
    """Answers as SQS and DynamoDB do. A fault is a status with AWS's name for it."""

    def serve(self, handler):
        self.target = handler.headers["X-Amz-Target"]
        super().serve(handler)

    def act(self, method, path, key):
        reads = self.target.rpartition(".")[2] in ("ListQueues", "GetItem")
        return (
            {}
            if reads
            else {"MessageId": "m-1", "effect": super().act(method, path, key)["effect"]}
        )

    def say(self, handler, status, body, headers, *, cut=False):
        headers = {
            "x-amzn-requestid": "r-1",
            "content-type": "application/x-amz-json-1.0",
        } | headers
        if status >= 400:
            name = headers.pop("name")
            body = {"__type": f"com.amazonaws.sqs#{name}", "message": "no"}
        super().say(handler, status, body, headers, cut=cut)


@pytest.fixture
def queue():
    with Queue() as queue:
        yield queue


@pytest.fixture
def make():
    made = []

    def client(url, service="sqs", **config):
        settings = {
            "connect_timeout": 5,
            "read_timeout": 5,
            "retries": {"mode": "standard"},
        } | config
        session = botocore.session.Session()
        made.append(
            session.create_client(service, endpoint_url=url, config=Config(**settings), **IDENTITY)
        )
        return made[-1]

    yield client
    for each in made:
        each.close()


def sends(client):
    return client.send_message(QueueUrl=client.meta.endpoint_url, MessageBody="pay")


@each_way
def test_a_message_that_was_accepted_is_done_whatever_the_tool_makes_of_it(queue, make, contract):
    client = protect(make(queue.url), retry=SOON)

    assert ended(lambda: sends(client), **contract) == DONE
    assert queue.effects == 1


@each_way
@pytest.mark.parametrize(
    "name",
    [
        "QueueDoesNotExist",
        "ValidationException",
        "ResourceNotFoundException",
        "ConditionalCheckFailedException",
    ],
)
def test_a_refusal_is_a_failure_for_good(queue, make, contract, name):
    client, queue.faults = protect(make(queue.url), retry=SOON), [(400, {"name": name})]

    says = ended(lambda: sends(client), **contract)

    assert says[0] in {name, "ClientError", "ResourceNotFoundException"}
    assert (says[1], queue.effects, len(queue.requests)) == ("ReplayedFailure", 0, 1)


@pytest.mark.parametrize("status", [400, 429])
def test_what_was_throttled_is_sent_again_once_for_each_of_our_attempts(queue, make, status):
    client = protect(make(queue.url), retry=SOON)
    queue.faults = [(status, {"name": "ThrottlingException"})] * 2

    assert inner_attempts(client) == 1
    assert sends(client)["MessageId"] == "m-1"
    assert (queue.effects, len(queue.requests)) == (1, 3)


def test_what_stays_throttled_may_run_again(queue, make):
    client = protect(make(queue.url), retry=SOON)
    queue.faults = [(400, {"name": "ThrottlingException"})] * 6

    assert ended(lambda: sends(client), through=client) == GAVE_UP
    assert (queue.effects, len(queue.requests)) == (0, 6)


@pytest.mark.parametrize(
    "fault", ["lose", "reset", "cut", (500, {"name": "InternalFailure"})], ids=str
)
def test_what_may_have_landed_is_sent_once_and_stays_in_doubt(queue, make, fault):
    """botocore by itself sends each of these three times: three messages."""
    client, queue.faults = protect(make(queue.url), retry=SOON), [fault] * 3

    assert ended(lambda: sends(client), through=client) == DOUBT
    assert len(queue.requests) == 1


def test_an_answer_that_breaks_off_is_an_error_and_not_half_a_result(queue, make):
    client, queue.faults = protect(make(queue.url), retry=SOON), ["cut"]

    with pytest.raises(IncompleteReadError):
        sends(client)


def test_a_connection_that_did_not_come_about_is_no_request(queue, make, nobody):
    client = protect(make(nobody), retry=SOON)

    # it ran twice
    assert ended(lambda: sends(client), through=client) == ["EndpointConnectionError"] * 2


def test_so_is_a_name_that_nobody_has(make):
    client = protect(make("http://sqs.invalid"), retry=SOON)

    # it ran twice
    assert ended(lambda: sends(client), through=client) == ["EndpointConnectionError"] * 2


def test_what_fails_before_it_sends_may_run_again(queue, make):
    client = protect(make(queue.url), retry=SOON)

    assert (
        ended(lambda: client.send_message(QueueUrl=5), through=client)
        == ["ParamValidationError"] * 2
    )
    assert queue.requests == []


def test_an_operation_that_reads_says_nothing_about_the_effect_and_is_repeated(queue, make):
    """AWS calls it by POST like any other."""
    client, queue.faults = protect(make(queue.url), retry=SOON), ["lose"]

    assert ended(client.list_queues, through=client) == FAILED_BEFORE
    assert len(queue.requests) == 3


def test_a_refusal_after_a_lost_answer_is_none(queue, make):
    """Under a key: the tool says that it may be sent again."""
    client = protect(make(queue.url), retry=SOON, kind="idempotent_write")
    queue.faults = ["lose", (400, {"name": "ValidationException"})]

    with pytest.raises(ClientError) as raised:
        sends(client)
    assert (
        raised.value.response["ResponseMetadata"]["HTTPHeaders"]["x-effectonce-tried"] == "unsure"
    )
    queue.faults = ["lose", (400, {"name": "ValidationException"})]
    assert ended(lambda: sends(client), through=client) == DOUBT


def test_no_attempt_waits_longer_than_there_is_time(queue, make):
    client, queue.faults = (
        protect(make(queue.url, read_timeout=60), retry=Retry(attempts=1, deadline_s=0.2)),
        ["hang"],
    )

    with pytest.raises(ReadTimeoutError):
        sends(client)


# ---------------------------------------------------------------- other formats


class Says(Listener):
    """A server that answers each request with the same bytes."""

    requests = 0

    def __init__(self, status, body, headers=""):
        said = (
            f"HTTP/1.1 {status} X\r\n{headers}connection: close\r\ncontent-length:"
            f" {len(body)}\r\n\r\n{body}"
        )

        def serve(line):
            line.recv(65536)
            self.requests += 1
            line.sendall(said.encode())

        super().__init__(serve)
        self.url = f"http://127.0.0.1:{self.port}"


THROTTLED = "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>no</Message></Error></ErrorResponse>"
FAILED = "<?xml version='1.0'?>\n<Error><Code>InternalError</Code><Message>no</Message></Error>"


def test_a_throttle_that_is_said_in_xml_with_a_400_is_no_refusal_for_good(make):
    """SNS and SES: the status alone says that the request is wrong."""
    with Says(400, THROTTLED, "x-amzn-requestid: r-1\r\n") as server:
        client = protect(make(server.url, "sns"), retry=SOON)

        assert ended(lambda: client.publish(TopicArn="t", Message="m"), through=client) == GAVE_UP
        assert server.requests == 6


def test_a_failure_that_s3_wraps_in_a_200_is_not_done(make):
    with Says(200, FAILED) as server:
        client = protect(make(server.url, "s3"), retry=SOON)

        def act():
            client.complete_multipart_upload(
                Bucket="b", Key="k", UploadId="u", MultipartUpload={"Parts": []}
            )

        assert ended(act, through=client) == DOUBT
        assert server.requests == 1


def test_a_table_is_put_into_by_post_and_read_by_post(queue, make):
    client = protect(make(queue.url, "dynamodb"), retry=SOON)
    item = {"id": {"S": "1"}}

    assert ended(lambda: client.get_item(TableName="t", Key=item), through=client) == FAILED_BEFORE
    assert ended(lambda: client.put_item(TableName="t", Item=item), through=client) == DONE
    assert queue.effects == 1


def test_a_client_is_protected_once_and_in_place(queue, make):
    client = make(queue.url)

    assert protect(client) is client
    with pytest.raises(TypeError, match="protected already"):
        protect(client)


def test_botocore_in_async_code_is_refused(queue, make):
    client = make(queue.url)

    async def get_response(request, operation, context):
        """As aiobotocore has it."""

    client._endpoint._do_get_response = get_response
    with pytest.raises(TypeError, match="async code"):
        protect(client)
