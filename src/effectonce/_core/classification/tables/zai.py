"""Z.AI (GLM), in OpenAI's and Anthropic's formats. Its codes are numbers: only its host's count."""

from effectonce._core.classification.tables._row import B, M, R, Table, code, text

TABLE = Table(
    name="zai",
    checked="docs.z.ai, Errors: by its page",
    hosts=("api.z.ai", "open.bigmodel.cn"),
    over_http=True,
    only_theirs=True,
    rows=(
        code("1302 1303", B.RATE_LIMIT, R),
        code("1305", B.OVERLOADED, R),
        code("1113", B.QUOTA, R, "there is no balance and no package"),
        code(
            "1304 1308 1310",
            B.QUOTA,
            R,
            "the plan's limit for a day, some hours, a week or a month is used up",
        ),
        code("1309 1314", B.QUOTA, R, "the plan has expired"),
        code("1311 1315", B.QUOTA, R, "the plan does not include this model or this use"),
        code(
            "1313",
            B.QUOTA,
            R,
            "the account is held back for the way it is used: ask for access at Z.AI",
        ),
        code(
            "1316 1317 1318 1319 1320 1321",
            B.QUOTA,
            R,
            "the plan's limit is used up, and so is what may be spent beyond it",
        ),
        code("1000 1001 1003 1005 1220", B.AUTH, R),
        code("1211", B.NOT_FOUND, R, "there is no such model"),
        code("1261", B.CONTEXT_LENGTH, R),
        code("1301", B.CONTENT_POLICY, R),
        code("1200 1230 1234", B.SERVER_ERROR, M),
        text("insufficient balance or no resource package | monthly limit exhausted", B.QUOTA),
        text("usage limit reached for", B.QUOTA, weak=True),
    ),
)
