"""The verbs and other predicates of miniworld: what can be said of whom, where and when."""

from __future__ import annotations

from mallang.data.miniworld_words import ADJECTIVES, Stem, Verb, stem


def _hada(root: str, adjectival: bool = False) -> Stem:
    return Stem(root + "하", root + "해", root + "하", adjectival)


SOON = "past future want"
SKILL = "past progressive habit future want can"
FEELING = "past progressive habit"
ADULTS = "pronoun name elder doctor singer farmer student friend"
SEE = stem("보 보아 보")
RIDE = stem("타 타 타")
CALL = stem("부르 불러 부르")
PUT = stem("쓰 써 쓰")
BE_THERE, BE_ABSENT = stem("있 있어 있으", True), stem("없 없어 없으", True)

ACTIONS = (
    Verb(
        "eat ate eating",
        stem("먹 먹어 먹으"),
        "people animal",
        "food",
        "집 학교 공원 식당 부엌",
        honor="드시",
        modifiers="adnop",
    ),
    Verb(
        "drink drank drinking",
        stem("마시 마셔 마시"),
        "people animal",
        "drink",
        "집 식당 공원 부엌",
        honor="드시",
        modifiers="adnop",
    ),
    Verb(
        "buy bought buying",
        stem("사 사 사"),
        what="wear apple egg bread cake meat milk juice bag umbrella flower book bicycle",
        where="시장 서울 부산",
        when=SOON,
        modifiers="adnop",
    ),
    Verb(
        "make made making",
        stem("만들 만들어 만드"),
        what="bread cake juice bag hat",
        modifiers="anp",
        where="집 부엌 학교",
        when=SKILL,
    ),
    Verb("read read reading", stem("읽 읽어 읽으"), what="book letter", where="집 도서관 공원 방"),
    Verb("write wrote writing", PUT, what="book letter", where="집 도서관 방", modifiers="an"),
    Verb("wear wore wearing", PUT, what="hat glasses", modifiers="ado", shares_number=True),
    Verb("wear wore wearing", stem("입 입어 입으"), what="coat shirt", modifiers="ado", shares_number=True),
    Verb("wear wore wearing", stem("신 신어 신으"), what="shoes", modifiers="ado", shares_number=True),
    Verb("watch watched watching", SEE, what="movie soccer basketball", where="집 방 학교"),
    Verb("see saw seeing", SEE, what="animal", where="공원 해변 서울 부산", when=SOON),
    Verb("see saw seeing", SEE, what="ship bridge", where="해변 부산", when=SOON),
    Verb("listen_to listened_to listening_to", stem("듣 들어 들으"), what="music song", where="집 방 공원 도서관"),
    Verb(
        "play played playing",
        stem("치 쳐 치"),
        what="piano",
        where="집 학교 방",
        when=SKILL,
        article="the",
        modifiers="",
    ),
    Verb("play played playing", stem("하 해 하"), what="soccer basketball", where="공원 학교 해변", when=SKILL),
    Verb("ride rode riding", RIDE, what="bicycle horse", where="공원 학교 해변", when=SKILL, modifiers="ado"),
    Verb(
        "take took taking",
        RIDE,
        what="bus train ship",
        where="서울 부산",
        when="past habit future want",
        article="the",
        modifiers="",
    ),
    Verb("drive drove driving", _hada("운전"), ADULTS, "car bus", "서울 부산", when=SKILL, modifiers="ado"),
    Verb(
        "cross crossed crossing",
        stem("건너 건너 건너"),
        what="bridge street",
        when="past progressive habit future",
        article="the",
        modifiers="a",
    ),
    Verb("open opened opening", stem("열 열어 여"), what="door window", where="집 방", article="the", modifiers="a"),
    Verb(
        "close closed closing",
        stem("닫 닫아 닫으"),
        what="door window",
        where="집 방",
        article="the",
        modifiers="a",
    ),
    Verb(
        "draw drew drawing",
        stem("그리 그려 그리"),
        what="animal flower tree ship bridge",
        where="공원 방 해변",
        when=SKILL,
    ),
    Verb(
        "lose lost losing",
        stem("잃어버리 잃어버려 잃어버리"),
        what="wear bag umbrella book",
        where="학교 공원 시장 서울",
        when="past",
        modifiers="ado",
    ),
    Verb(
        "meet met meeting",
        stem("만나 만나 만나"),
        what="pronoun name role",
        where="공원 식당 학교 도서관 시장 서울 부산",
    ),
    Verb("help helped helping", stem("돕 도와 도우"), what="pronoun name role", where="집 학교 시장 병원"),
    Verb(
        "wait_for waited_for waiting_for",
        stem("기다리 기다려 기다리"),
        what="pronoun name elder doctor singer farmer student child bus train",
        where="학교 공원 병원 식당",
        article="the",
        modifiers="",
    ),
    Verb("call called calling", CALL, what="pronoun name doctor", when="past future", modifiers=""),
    Verb("sing sang singing", CALL, what="song", where="집 학교 공원", when=SKILL),
    Verb(
        "teach taught teaching",
        stem("가르치 가르쳐 가르치"),
        ADULTS,
        "Korean English music",
        "학교 도서관 서울",
        when=SKILL,
    ),
    Verb("receive received receiving", stem("받 받아 받으"), what="letter present", when=SOON),
    Verb(
        "accept accepted accepting",
        stem("받아들이 받아들여 받아들이"),
        what="apology",
        when="past future",
        modifiers="o",
    ),
    Verb("take took taking", stem("찍 찍어 찍으"), what="picture", where="공원 해변 서울 부산"),
    Verb(
        "become became becoming",
        stem("되 되어 되"),
        "pronoun name",
        "doctor singer farmer",
        when=SOON,
        case="이가",
        modifiers="",
        timeless=True,
        shares_number=True,
    ),
    Verb(
        "give gave giving",
        stem("주 주어 주"),
        what="flower present book hat apple",
        when=SOON,
        humble="드리",
        needs="recipient",
    ),
    Verb(
        "send sent sending",
        stem("보내 보내 보내"),
        what="letter present flower picture",
        humble="보내 드리",
        needs="recipient",
    ),
    Verb(
        "show showed showing",
        stem("보여_주 보여_주어 보여_주"),
        what="picture book bag shirt",
        when=SOON,
        humble="보여 드리",
        needs="recipient",
    ),
    Verb(
        "lend lent lending",
        stem("빌려주 빌려주어 빌려주"),
        what="book umbrella bicycle bag car",
        when=SOON,
        humble="빌려드리",
        needs="recipient",
    ),
    Verb("apologize apologized apologizing", stem("하 해 하"), when=SOON, part="사과를", needs="recipient"),
    Verb("sleep slept sleeping", stem("자 자 자"), "people animal", where="집 방 공원 정원", honor="주무시"),
    Verb("cry cried crying", stem("울 울어 우"), where="집 방 공원 학교", when=FEELING),
    Verb("laugh laughed laughing", stem("웃 웃어 웃으"), where="집 방 공원 학교", when=FEELING),
    Verb("swim swam swimming", _hada("수영"), where="해변 부산", when=SKILL),
    Verb("run ran running", stem("달리 달려 달리"), "people animal", where="공원 정원 학교 해변"),
    Verb("walk walked walking", stem("걷 걸어 걸으"), "people animal", where="공원 정원 해변"),
    Verb("work worked working", _hada("일"), ADULTS, where="식당 병원 도서관 시장 학교 서울 부산"),
    Verb("rest rested resting", stem("쉬 쉬어 쉬"), "people animal", where="집 공원 방 해변 정원"),
    Verb(
        "go went going",
        stem("가 가 가"),
        where="집 학교 공원 도서관 시장 식당 병원 해변 서울 부산",
        place_case="에",
        needs="goal",
    ),
    Verb(
        "come came coming", stem("오 와 오"), where="집 학교 공원 도서관 해변 서울 부산", place_case="에", needs="goal"
    ),
)
LIKED = "apple pear chestnut bread cake coffee milk music movie soccer basketball cat dog horse flower"
TASTES = (
    Verb(
        "like liked liking",
        _hada("좋아"),
        what=LIKED,
        when="present past",
        article="all",
        modifiers="adop",
        timeless=True,
    ),
    Verb(
        "hate hated hating",
        _hada("싫어"),
        what=LIKED,
        when="present past",
        article="all",
        modifiers="adop",
        timeless=True,
    ),
)
HAVE = Verb(
    "have had having",
    BE_THERE,
    what="cat dog horse bicycle car hat umbrella book piano bag friend",
    when="present past",
    negative=BE_ABSENT,
    case="이가",
    modifiers="an",
    timeless=True,
)
LIVE = Verb(
    "live lived living",
    stem("살 살아 사"),
    where="서울 부산",
    when="present past",
    place_case="에",
    needs="place",
    timeless=True,
)
IDENTITY = Verb(
    "be was being",
    stem("이 이어 이", True),
    "pronoun name",
    "doctor student singer farmer",
    when="present past",
    negative=stem("아니 아니어 아니", True),
    case="이가",
    modifiers="",
    timeless=True,
    shares_number=True,
)


def _there(what: str, where: str) -> Verb:
    return Verb(
        "be was being",
        BE_THERE,
        "",
        what,
        where,
        when="present past",
        negative=BE_ABSENT,
        case="이가",
        place_case="에",
        modifiers="an",
        dummy="there",
        needs="place",
        timeless=True,
    )


THERE = (
    _there("child student cat dog bird bicycle piano", "방"),
    _there("child farmer cat dog horse bird flower tree", "공원 정원"),
    _there("book bag letter present hat pear apple umbrella", "책상_위"),
    _there("child cat dog horse bicycle", "나무_밑"),
    _there("bread meat egg pear water milk juice", "부엌"),
)


def _feeling(english: str, korean: Stem, part: str = "") -> Verb:
    return Verb("be was being", korean, when="present past", part=part, complement=english)


FEELINGS = (
    _feeling("tired", _hada("피곤", True)),
    _feeling("happy", _hada("행복", True)),
    _feeling("busy", stem("바쁘 바빠 바쁘", True)),
    _feeling("sick", stem("아프 아파 아프", True)),
    _feeling("hungry", stem("고프 고파 고프", True), "배가"),
    _feeling("thirsty", stem("마르 말라 마르", True), "목이"),
)
ACHES = tuple(
    Verb("hurt hurt hurting", stem("아프 아파 아프", True), when="present past", part=korean, part_english=english)
    for korean, english in (("배가", "stomach"), ("머리가", "head"), ("다리가", "leg"))
)
LOOKS = tuple(
    Verb(
        "have had having",
        forms,
        "pronoun name role",
        when="present",
        part=korean,
        part_english=english,
        complement=quality,
        timeless=True,
    )
    for korean, forms, quality, english in (
        ("눈이", stem("크 커 크", True), "big", "eyes"),
        ("눈이", stem("예쁘 예뻐 예쁘", True), "pretty", "eyes"),
        ("다리가", stem("길 길어 기", True), "long", "legs"),
    )
)
WEATHER = tuple(
    Verb(
        english,
        stem("오 와 오"),
        "",
        where="서울 부산",
        when="past progressive future",
        place_case="에",
        part=korean,
        dummy="it",
    )
    for korean, english in (("비가", "rain rained raining"), ("눈이", "snow snowed snowing"))
)
QUALITIES = tuple(
    Verb(
        "be was being",
        adjective.stem,
        adjective.said_of,
        when="present past",
        complement=adjective.english,
        timeless=True,
    )
    for adjective in ADJECTIVES
    if adjective.stem
)
UNUSUAL = {"write": ("old",), "make": ("old",), "like": ("delicious",), "hate": ("delicious",)}
"""Qualities that the objects of some verbs do not have: nobody makes an old bag."""

VERBS = ACTIONS + TASTES + (HAVE, LIVE, IDENTITY) + THERE + FEELINGS + ACHES + LOOKS + WEATHER + QUALITIES
